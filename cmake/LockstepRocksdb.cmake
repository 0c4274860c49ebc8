# Finds RocksDB, which keeps rows of tables that grow on disk. An installed lockstep runs this same file for its users.

# Its own package file demands the development files of every library that the shared one links.
if(NOT TARGET lockstep_rocksdb AND NOT LOCKSTEP_ROCKSDB STREQUAL "OFF")
  find_path(LOCKSTEP_ROCKSDB_INCLUDE rocksdb/db.h)
  find_library(LOCKSTEP_ROCKSDB_LIBRARY rocksdb)
  if(LOCKSTEP_ROCKSDB_INCLUDE AND LOCKSTEP_ROCKSDB_LIBRARY)
    # Targets in any folder that link the layer must see the library that the layer links.
    add_library(lockstep_rocksdb UNKNOWN IMPORTED GLOBAL)
    set_target_properties(lockstep_rocksdb PROPERTIES
      IMPORTED_LOCATION ${LOCKSTEP_ROCKSDB_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${LOCKSTEP_ROCKSDB_INCLUDE})
  elseif(lockstep_is_installed OR LOCKSTEP_ROCKSDB STREQUAL "ON")
    message(FATAL_ERROR "RocksDB not found, which this Lockstep uses (Debian: librocksdb-dev)")
  endif()
endif()

set(lockstep_rocksdb_library)
if(TARGET lockstep_rocksdb)
  set(lockstep_rocksdb_library lockstep_rocksdb)
endif()
