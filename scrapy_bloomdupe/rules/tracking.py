"""Which query parameters only say where a visitor came from? Names and globs, our own list.

Kept short on purpose: a name that any site may use for its content (``ref``, ``source``, ``id``) is not
in it. A page whose content depends on one of these is merged with its sisters.
"""

from __future__ import annotations

#: Campaign and click ids of analytics and advertising services.
TRACKING: tuple[str, ...] = (
    "utm_*",
    "gclid",
    "gclsrc",
    "dclid",
    "gbraid",
    "wbraid",
    "_ga",
    "_gl",
    "fbclid",
    "fb_action_ids",
    "fb_action_types",
    "msclkid",
    "yclid",
    "ysclid",
    "ttclid",
    "twclid",
    "igshid",
    "li_fat_id",
    "mc_cid",
    "mc_eid",
    "mkt_tok",
    "_hsenc",
    "_hsmi",
    "hsCtaTracking",
    "vero_id",
    "oly_anon_id",
    "oly_enc_id",
    "wickedid",
    "rb_clickid",
    "s_cid",
    "epik",
    "irclickid",
    "spm",
    "scm",
    "vd_source",
    "spm_id_from",
)

#: Names, in lower case, under which sites put the id of a session; the value has to look like one too.
SESSION_NAMES: frozenset[str] = frozenset(
    ("phpsessid", "jsessionid", "aspsessionid", "sessionid", "session_id", "sid", "sessid", "cfid", "cftoken")
)
