#include "lockstep/runtime/cluster/internal/user_secret.h"

// C library headers, for their types.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <string>
#include <system_error>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/utf8_text.h"
#include "lockstep/runtime/base/net/descriptor.h"

namespace lockstep {
namespace {

constexpr mode_t kOnlyThisUser = 0600;
constexpr mode_t kFolderOfThisUser = 0700;
constexpr mode_t kOthers = S_IRWXG | S_IRWXO;
constexpr size_t kDigits = 64;

/// Returns the path in a variable; nothing if it is not set or not absolute.
std::optional<std::string> find_path(const Environment& environment, const char* name) {
  auto path = environment(name);
  if (path && path->starts_with('/')) return path;
  return std::nullopt;
}

void make_folder(const std::string& path) {
  if (::mkdir(path.c_str(), kFolderOfThisUser) == 0 || errno == EEXIST) return;
  throw InvalidArgument(printable(path) +
                        ": cannot make this folder: " + std::generic_category().message(errno));
}

/// Returns the folder of the secret, which exists.
std::string make_secret_folder(const Environment& environment) {
  auto parent = find_path(environment, "XDG_RUNTIME_DIR");  // the system makes it
  if (!parent) {
    parent = find_path(environment, "XDG_CACHE_HOME");
    const auto home = find_path(environment, "HOME");
    if (!parent && home) parent = *home + "/.cache";
    if (!parent)
      throw InvalidArgument(
          "expected XDG_RUNTIME_DIR, XDG_CACHE_HOME or HOME to name a folder by an absolute path, but none "
          "does");
    make_folder(*parent);
  }
  std::string folder = *parent + "/lockstep";
  make_folder(folder);
  return folder;
}

[[noreturn]] void refuse_file(const std::string& path, const std::string& given) {
  throw InvalidArgument(
      printable(path) +
      ": expected a file that belongs to this user and that no other user may read or write, "
      "but got " +
      given + ": delete it, and a new one is made");
}

[[noreturn]] void throw_failed(const std::string& action, const std::string& path, int error) {
  throw InvalidArgument(printable(path) + ": cannot " + action +
                        " this file: " + std::generic_category().message(error));
}

std::string mode_text(mode_t mode) {
  std::string digits = "0";
  for (const int shift : {6, 3, 0}) digits += static_cast<char>('0' + ((mode >> shift) & 7));
  return digits;
}

void check_file(const std::string& path, int file) {
  struct stat status {};
  if (::fstat(file, &status) != 0) throw_failed("read", path, errno);
  if (!S_ISREG(status.st_mode)) refuse_file(path, "something other than a file");
  if (status.st_uid != ::geteuid()) refuse_file(path, "one of user " + std::to_string(status.st_uid));
  if ((status.st_mode & kOthers) != 0) refuse_file(path, "one of mode " + mode_text(status.st_mode));
}

/// Returns nothing if there is no file.
std::optional<JobToken> read_secret(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (file.get() < 0) {
    if (errno == ENOENT) return std::nullopt;
    if (errno == ELOOP) refuse_file(path, "a symbolic link");
    throw_failed("read", path, errno);
  }
  check_file(path, file.get());
  std::array<char, kDigits + 1> text{};
  const ssize_t size = ::read(file.get(), text.data(), text.size());
  if (size < 0) throw_failed("read", path, errno);
  const std::string digits(text.data(), kDigits);
  const bool is_secret = static_cast<size_t>(size) == text.size() && text.back() == '\n' &&
                         digits.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!is_secret) {
    throw InvalidArgument(printable(path) +
                          ": expected a line of 64 hexadecimal digits, but got another content: "
                          "delete it, and a new one is made");
  }
  return JobToken::from_hex(digits);
}

/// Makes the file, unless there is one by now. Others see it with all of its content, or not at all.
void make_secret(const std::string& path) {
  const std::string beside = path + "." + JobToken::random().hex().substr(0, 16);
  const Descriptor file(
      ::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kOnlyThisUser));
  if (file.get() < 0) throw_failed("make", beside, errno);
  const std::string line = JobToken::random().hex() + "\n";
  errno = ENOSPC;  // the reason if only a part is written
  const bool is_written =
      ::write(file.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size()) &&
      ::fsync(file.get()) == 0;
  // Unlike rename(), link() never replaces the secret of a process that was faster.
  const bool is_there = is_written && (::link(beside.c_str(), path.c_str()) == 0 || errno == EEXIST);
  const int error = errno;
  ::unlink(beside.c_str());
  if (!is_there) throw_failed("make", path, error);
}

}  // namespace

JobToken user_secret(const Environment& environment) {
  const std::string path = make_secret_folder(environment) + "/user_secret";
  if (const auto secret = read_secret(path)) return *secret;
  make_secret(path);
  if (const auto secret = read_secret(path)) return *secret;
  throw_failed("read", path, ENOENT);
}

}  // namespace lockstep
