"""What all tests share."""

from hypothesis import HealthCheck, settings

# How long an example takes says something about the machine, not about the code: a loaded machine, or the
# first run, when hypothesis builds its Unicode tables, must not fail a property.
settings.register_profile("zambezi", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("zambezi")
