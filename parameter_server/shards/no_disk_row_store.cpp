#include "lockstep/parameter_server/shards/disk_row_store.h"
#include "lockstep/runtime/base/errors.h"

namespace lockstep {

bool has_disk_row_store() {
  return false;
}

std::unique_ptr<RowStore> make_disk_row_store(const DiskRowStoreOptions& options) {
  throw InvalidArgument("expected no folder for rows on disk, but got '" + options.folder +
                        "': RocksDB keeps them, and this Lockstep was built without it: install Debian's "
                        "librocksdb-dev and build Lockstep again");
}

}  // namespace lockstep
