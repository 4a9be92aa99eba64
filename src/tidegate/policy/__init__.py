"""The rule: small pieces, one signature per role, chosen by name from a policy that is data.

Pieces are pure and compare integers only; shares and scores are fixed-point with SHARE_BITS bits.
"""

SHARE_BITS = 20
