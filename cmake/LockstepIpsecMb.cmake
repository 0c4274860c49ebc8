# Finds Intel's IPsec Multi-Buffer library, which encrypts with VAES. An installed lockstep runs this same file for its users.

set(lockstep_ipsec_mb_library)
if(NOT TARGET lockstep_ipsec_mb AND NOT LOCKSTEP_IPSEC_MB STREQUAL "OFF")
  find_path(LOCKSTEP_IPSEC_MB_INCLUDE intel-ipsec-mb.h)
  find_library(LOCKSTEP_IPSEC_MB_LIBRARY IPSec_MB)
  if(LOCKSTEP_IPSEC_MB_INCLUDE AND LOCKSTEP_IPSEC_MB_LIBRARY)
    # A target that links the layer, in any folder, must see what the layer links.
    add_library(lockstep_ipsec_mb UNKNOWN IMPORTED GLOBAL)
    set_target_properties(lockstep_ipsec_mb PROPERTIES
      IMPORTED_LOCATION ${LOCKSTEP_IPSEC_MB_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${LOCKSTEP_IPSEC_MB_INCLUDE}
      INTERFACE_COMPILE_DEFINITIONS LOCKSTEP_HAS_IPSEC_MB)
  elseif(lockstep_is_installed OR LOCKSTEP_IPSEC_MB STREQUAL "ON")
    message(FATAL_ERROR "intel-ipsec-mb not found, which this Lockstep uses (Debian on amd64: libipsec-mb-dev)")
  endif()
endif()
if(TARGET lockstep_ipsec_mb)
  set(lockstep_ipsec_mb_library lockstep_ipsec_mb)
endif()
