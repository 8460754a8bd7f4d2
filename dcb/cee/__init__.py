"""DCBX of CEE v1.01, and CIN read only: codec (`tlv`), control and feature machines (`machine`), and `convert` to and
from 802.1Qaz's terms. `dcb.dcbx.port` uses it where a peer speaks only that. Import from the modules.
"""
