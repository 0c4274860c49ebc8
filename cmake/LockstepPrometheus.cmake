# Finds prometheus-cpp, which serves metrics over HTTP. An installed lockstep runs this same file for its users.

# Its own package file demands libcurl too, for pushing, which is not used here.
if(NOT TARGET lockstep_prometheus)
  find_path(LOCKSTEP_PROMETHEUS_INCLUDE prometheus/exposer.h)
  find_library(LOCKSTEP_PROMETHEUS_CORE prometheus-cpp-core)
  find_library(LOCKSTEP_PROMETHEUS_PULL prometheus-cpp-pull)
  if(LOCKSTEP_PROMETHEUS_INCLUDE AND LOCKSTEP_PROMETHEUS_CORE AND LOCKSTEP_PROMETHEUS_PULL)
    # Targets in any folder that link the layer must see the libraries that the layer links.
    add_library(lockstep_prometheus_core UNKNOWN IMPORTED GLOBAL)
    set_target_properties(lockstep_prometheus_core PROPERTIES IMPORTED_LOCATION ${LOCKSTEP_PROMETHEUS_CORE})
    add_library(lockstep_prometheus UNKNOWN IMPORTED GLOBAL)
    set_target_properties(lockstep_prometheus PROPERTIES
      IMPORTED_LOCATION ${LOCKSTEP_PROMETHEUS_PULL} INTERFACE_INCLUDE_DIRECTORIES ${LOCKSTEP_PROMETHEUS_INCLUDE}
      INTERFACE_LINK_LIBRARIES lockstep_prometheus_core)
  elseif(lockstep_is_installed OR LOCKSTEP_PROMETHEUS STREQUAL "ON")
    message(FATAL_ERROR "prometheus-cpp not found, which this Lockstep uses (Debian: prometheus-cpp-dev)")
  endif()
endif()
