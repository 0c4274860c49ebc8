#include "lockstep/parameter_server/shards/row_disk.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/parameter_server/shards/disk_row_store.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// Begins the names of the files and folders here. Others are not touched.
constexpr const char* kRowDiskPrefix = "lockstep-rows-";

/// Removes what a RowDisk that was killed has left.
void remove_rows_in(const std::string& folder) {
  std::vector<fs::path> left;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().filename().string().starts_with(kRowDiskPrefix)) left.push_back(entry.path());
  for (const auto& path : left) fs::remove_all(path);
}

[[noreturn]] void throw_row_disk_error(int error, const std::string& folder) {
  throw std::system_error(error, std::generic_category(), "cannot keep rows in '" + folder + "'");
}

}  // namespace

RowDisk::RowDisk(std::string folder) : folder_(std::move(folder)) {
  if (!has_disk_row_store()) make_disk_row_store({.folder = folder_});  // says what to install
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) throw_row_disk_error(error.value(), folder_);
  try {
    lock_ = std::make_unique<FolderLock>(folder_ + "/lock", FolderOwner::here());
  } catch (const FolderInUse& other) {
    throw FolderInUse("expected a folder for the rows of one server, but " + std::string(other.what()) +
                      " uses '" + folder_ + "'");
  }
  remove_rows_in(folder_);
}

RowDisk::~RowDisk() = default;

std::string RowDisk::own_name() {
  return folder_ + "/" + kRowDiskPrefix + std::to_string(num_names_++);
}

std::unique_ptr<RowStore> RowDisk::make_store(int64_t record_bytes, int64_t max_bytes) {
  return make_disk_row_store({.folder = own_name(), .record_bytes = record_bytes, .max_bytes = max_bytes});
}

std::shared_ptr<std::byte> RowDisk::map_bytes(size_t count) {
  const size_t size = std::max<size_t>(1, count);
  const std::string path = own_name();
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) throw_row_disk_error(errno, folder_);
  unlink(path.c_str());
  // Without room for it, writing to the memory would end the process.
  int error = posix_fallocate(file, 0, static_cast<off_t>(size));
  void* memory = MAP_FAILED;
  if (error == 0) {
    memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) error = errno;
  }
  close(file);
  if (error != 0) throw_row_disk_error(error, folder_);
  auto* bytes = static_cast<std::byte*>(memory);
  MutexLock lock(mapped_->mutex);
  mapped_->sizes[bytes] = size;
  return {bytes, [size, mapped = mapped_](std::byte* start) {
            MutexLock own(mapped->mutex);
            mapped->sizes.erase(start);
            munmap(start, size);
          }};
}

void RowDisk::release(const void* bytes, size_t count) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const auto* begin = static_cast<const std::byte*>(bytes);
  MutexLock lock(mapped_->mutex);
  auto found = mapped_->sizes.upper_bound(begin);
  if (found == mapped_->sizes.begin()) return;
  --found;
  const auto& [start, size] = *found;
  const auto first = static_cast<size_t>(begin - start) / page * page;
  const auto end = std::min(static_cast<size_t>(begin - start) + count, size);
  if (first < end) madvise(const_cast<std::byte*>(start) + first, end - first, MADV_DONTNEED);
}

}  // namespace lockstep
