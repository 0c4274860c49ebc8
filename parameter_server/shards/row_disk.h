#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "lockstep/parameter_server/shards/row_store.h"
#include "lockstep/runtime/base/files/folder_lock.h"
#include "lockstep/runtime/base/mutex.h"

namespace lockstep {

/// A folder on the local disk for rows that do not fit into memory. Its files are of no use to a later
/// process: checkpoints keep rows. Thread-safe.
class RowDisk {
 public:
  /// Makes the folder, locks it for this process, and removes what an earlier one left there. Throws
  /// InvalidArgument in a build without RocksDB, FolderInUse naming the folder if a process uses it, and
  /// std::system_error.
  explicit RowDisk(std::string folder);
  /// Stores must have gone before.
  ~RowDisk();
  RowDisk(const RowDisk&) = delete;
  RowDisk& operator=(const RowDisk&) = delete;

  const std::string& folder() const { return folder_; }
  /// See make_disk_row_store().
  std::unique_ptr<RowStore> make_store(int64_t record_bytes, int64_t max_bytes);
  /// Returns memory whose pages the system moves to a file without a name when it needs the memory. Throws
  /// std::system_error naming the folder, as if the disk has no room for all of them.
  std::shared_ptr<std::byte> map_bytes(size_t count);
  /// Has the system take the pages of these bytes from memory, as far as they are in memory that map_bytes()
  /// returned. Their values stay.
  void release(const void* bytes, size_t count);

 private:
  std::string own_name();
  /// Start and size of what map_bytes() has returned.
  struct Mapped {
    Mutex mutex;
    std::map<const std::byte*, size_t> sizes LOCKSTEP_GUARDED_BY(mutex);
  };

  const std::string folder_;
  std::unique_ptr<FolderLock> lock_;
  std::atomic<int64_t> num_names_ = 0;
  const std::shared_ptr<Mapped> mapped_ = std::make_shared<Mapped>();
};

}  // namespace lockstep
