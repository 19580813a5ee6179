"""``autofast explain FILE:LINE``: what the reader believes of one place. Nothing is worked out here
that the analyses do not say."""
