# Finds hwloc. An installed lockstep runs this same file for its users.

if(NOT TARGET lockstep_hwloc)
  find_path(LOCKSTEP_HWLOC_INCLUDE hwloc.h REQUIRED)
  find_library(LOCKSTEP_HWLOC hwloc REQUIRED)
  # A target that links the layer, in any folder, must see what the layer links.
  add_library(lockstep_hwloc UNKNOWN IMPORTED GLOBAL)
  set_target_properties(lockstep_hwloc PROPERTIES
    IMPORTED_LOCATION ${LOCKSTEP_HWLOC} INTERFACE_INCLUDE_DIRECTORIES ${LOCKSTEP_HWLOC_INCLUDE})
endif()
