"""LLDP (IEEE 802.1AB-2016): codec (`tlv`, `pdu`), machines (`transmit`, `receive`), the agent of one port (`agent`).

Sans-IO: frames and the time (integer nanoseconds) in, frames and events out. Import from the modules.
"""
