#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/parameter_server/shards/row_store.h"

namespace lockstep {

struct DiskRowStoreOptions {
  std::string folder;  ///< for this store alone; made anew, and removed with the store
  int64_t record_bytes = 0;
  /// Limit of the memory of the cache and of RocksDB together, kLeastDiskRowMemory or more.
  int64_t max_bytes = 0;
};

constexpr int64_t kLeastDiskRowMemory = int64_t{12} << 20;

/// Returns whether this build has RocksDB, which make_disk_row_store() needs.
bool has_disk_row_store();

/// Returns a store that keeps frequent rows in memory and the others in RocksDB. It takes any number of
/// rows: write() never replaces one. Rows of one update are visited in any order.
///
/// Throws InvalidArgument for a limit that is too small, and in a build without RocksDB, naming what to
/// install. The store's functions throw std::system_error naming the folder if the disk is full or fails;
/// after that, they always do, because rows may be missing.
std::unique_ptr<RowStore> make_disk_row_store(const DiskRowStoreOptions& options);

}  // namespace lockstep
