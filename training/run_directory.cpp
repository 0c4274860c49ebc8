#include "lockstep/training/run_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void throw_refused(const std::string& action, const std::string& path, int error) {
  throw RunDirectoryError("[RunDirectory] expected a folder that can be written, but cannot " + action +
                          " '" + path + "': " + std::generic_category().message(error));
}

[[noreturn]] void throw_in_use(const std::string& folder, const std::string& owner) {
  throw RunDirectoryError("[RunDirectory] expected a folder that no process uses, but '" + folder +
                          "' is in use by " + owner);
}

/// Throws where the folder holds anything but a lock file.
void check_empty(const RunPaths& paths) {
  std::error_code error;
  std::string first;
  int64_t others = -1;
  for (fs::directory_iterator entry(paths.folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (entry->path() == fs::path(paths.lock())) continue;
    if (first.empty() || name < first) first = name;
    ++others;
  }
  if (error) throw_refused("list", paths.folder, error.value());
  if (first.empty()) return;
  throw RunDirectoryError("[RunDirectory] expected a new or empty folder, but '" + paths.folder + "' holds " +
                          first + (others > 0 ? " and " + std::to_string(others) + " more" : "") +
                          "; nothing in it was changed");
}

/// Locks of an open file description: unlike flock's, they can be looked at without being taken.
struct flock whole_file_lock() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

std::string owner_of(const RunPaths& paths) {
  std::ifstream file(paths.lock());
  std::string owner;
  std::getline(file, owner);
  constexpr size_t kLongest = 300;
  return owner.empty() || owner.size() > kLongest ? "another process" : owner;
}

std::string this_process() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  return "process " + std::to_string(::getpid()) + " on " + host.data();
}

}  // namespace

std::optional<std::string> run_directory_owner(const RunPaths& paths) {
  // Another user's lock file can be read, not written, and looking at a lock takes no more.
  const int file = ::open(paths.lock().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return std::nullopt;
  struct flock lock = whole_file_lock();
  const bool is_held = ::fcntl(file, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
  ::close(file);
  if (!is_held) return std::nullopt;
  return owner_of(paths);
}

RunDirectory::RunDirectory(const std::string& folder) : paths_{folder} {
  if (folder.empty()) throw RunDirectoryError("[RunDirectory] expected the path of a folder, but got ''");
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw_refused("make", folder, error.value());
  // An owner tells more than that the folder is not empty.
  if (const auto owner = run_directory_owner(paths_)) throw_in_use(folder, *owner);
  check_empty(paths_);
  take_lock();
  try {
    check_empty(paths_);
    for (const auto& part : {paths_.tensorboard(), paths_.checkpoints()}) {
      if (::mkdir(part.c_str(), 0777) != 0) throw_refused("make", part, errno);
    }
  } catch (...) {
    release();
    throw;
  }
}

void RunDirectory::take_lock() {
  const std::string path = paths_.lock();
  for (;;) {
    lock_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (lock_ < 0) throw_refused("create", path, errno);
    struct flock lock = whole_file_lock();
    if (::fcntl(lock_, F_OFD_SETLK, &lock) != 0) {
      const int error = errno;
      ::close(lock_);
      lock_ = -1;
      if (error == EAGAIN || error == EACCES) throw_in_use(paths_.folder, owner_of(paths_));
      throw_refused("lock", path, error);
    }
    // Its last owner may have removed the file between the two calls above.
    struct stat opened {};
    struct stat named {};
    if (::fstat(lock_, &opened) == 0 && ::stat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino)
      break;
    ::close(lock_);
    lock_ = -1;
  }
  const std::string owner = this_process() + "\n";
  if (::ftruncate(lock_, 0) != 0 || ::write(lock_, owner.data(), owner.size()) < 0) {
    const int error = errno;
    release();
    throw_refused("write", path, error);
  }
}

void RunDirectory::release() {
  if (lock_ < 0) return;
  ::unlink(paths_.lock().c_str());  // before the lock goes: it is this process's file until then
  ::close(lock_);
  lock_ = -1;
}

RunDirectory::~RunDirectory() {
  release();
}

}  // namespace lockstep
