"""Headroom calculators: how many bytes can still arrive after XOFF, line by line, by four methods. Sans-IO, exact.

`exact_headroom`: our switch, to the byte. `delay_headroom`: delay terms as 802.1Q annex O. `sonic_headroom`: SONiC's
dynamic formula. `articles`: rules of thumb for XOFF, XON and watchdog. Constants with their sources: `constants`.
"""

from dcb.headroom.budget import Budget as Budget
from dcb.headroom.budget import Line as Line
from dcb.headroom.constants import DEFAULTS as DEFAULTS
from dcb.headroom.constants import Constants as Constants
from dcb.headroom.constants import HeadroomError as HeadroomError
from dcb.headroom.delay_terms import delay_headroom as delay_headroom
from dcb.headroom.exact import exact_headroom as exact_headroom
from dcb.headroom.sonic import sonic_headroom as sonic_headroom
