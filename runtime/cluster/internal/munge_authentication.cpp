#include "lockstep/runtime/cluster/internal/munge_authentication.h"

// C library headers, for their types.
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <stdexcept>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/signal_guard.h"
#include "lockstep/runtime/base/internal/utf8_text.h"

namespace lockstep {
namespace {

constexpr const char* kMungeLibrary = "libmunge.so.2";

// Numbers of the library's interface (munge.h), which libmunge.so.2 keeps.
constexpr int kSocketOption = 8;
constexpr int kUserRestrictionOption = 9;

/// The library, which is not needed to build Lockstep or to run it without MUNGE.
class MungeLibrary {
 public:
  using Context = struct munge_ctx*;

  /// Returns nullptr if it is not installed.
  static const MungeLibrary* find() {
    static const MungeLibrary library;
    return library.is_complete_ ? &library : nullptr;
  }
  /// Throws InvalidArgument if it is not installed.
  static const MungeLibrary& get() {
    if (const auto* library = find()) return *library;
    throw InvalidArgument(std::string("[MUNGE] expected the library ") + kMungeLibrary +
                          ", but it is not installed (Debian: libmunge2)");
  }

  Context (*create)() = nullptr;
  void (*destroy)(Context) = nullptr;
  const char* (*context_error)(Context) = nullptr;
  const char* (*error_text)(int) = nullptr;
  int (*set)(Context, int option, ...) = nullptr;
  int (*get_option)(Context, int option, ...) = nullptr;
  int (*encode)(char** credential, Context, const void* payload, int size) = nullptr;
  int (*decode)(const char* credential, Context, void** payload, int* size, uid_t*, gid_t*) = nullptr;

 private:
  MungeLibrary() {
    void* library = dlopen(kMungeLibrary, RTLD_NOW | RTLD_LOCAL);  // never closed
    is_complete_ = library != nullptr && load(library, "munge_ctx_create", create) &&
                   load(library, "munge_ctx_destroy", destroy) &&
                   load(library, "munge_ctx_strerror", context_error) &&
                   load(library, "munge_strerror", error_text) && load(library, "munge_ctx_set", set) &&
                   load(library, "munge_ctx_get", get_option) && load(library, "munge_encode", encode) &&
                   load(library, "munge_decode", decode);
  }

  template <typename Function>
  static bool load(void* library, const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(dlsym(library, name));
    return function != nullptr;
  }

  bool is_complete_ = false;
};

/// Options of one call, and its error.
class MungeContext {
 public:
  explicit MungeContext(const std::string& socket)
      : library_(MungeLibrary::get()), context_(library_.create()) {
    if (context_ == nullptr) throw std::bad_alloc();
    if (!socket.empty()) library_.set(context_, kSocketOption, socket.c_str());
  }
  ~MungeContext() { library_.destroy(context_); }
  MungeContext(const MungeContext&) = delete;
  MungeContext& operator=(const MungeContext&) = delete;

  const MungeLibrary& library() const { return library_; }
  MungeLibrary::Context get() const { return context_; }
  std::string socket() const {
    const char* path = nullptr;
    return library_.get_option(context_, kSocketOption, &path) == 0 && path != nullptr ? path : "";
  }
  /// Returns the text of a call's error.
  std::string error(int code) const {
    const char* text = library_.context_error(context_);
    return text != nullptr ? text : library_.error_text(code);
  }

 private:
  const MungeLibrary& library_;
  const MungeLibrary::Context context_;
};

using MungeBytes = std::unique_ptr<void, decltype(&std::free)>;

}  // namespace

MungeAuthentication::MungeAuthentication(const std::string& socket) : socket_(MungeContext(socket).socket()) {
  try {
    prove({});
  } catch (const std::runtime_error& error) {
    throw InvalidArgument(error.what());
  }
}

bool MungeAuthentication::is_present(const std::string& socket) {
  if (MungeLibrary::find() == nullptr) return false;
  struct stat status {};
  return ::stat(MungeContext(socket).socket().c_str(), &status) == 0 && S_ISSOCK(status.st_mode);
}

std::vector<uint8_t> MungeAuthentication::prove(std::span<const uint8_t> statement) const {
  const SignalGuard without_broken_pipes(SIGPIPE);
  const MungeContext context(socket_);
  context.library().set(context.get(), kUserRestrictionOption, ::geteuid());
  char* text = nullptr;
  const int error =
      context.library().encode(&text, context.get(), statement.data(), static_cast<int>(statement.size()));
  const MungeBytes owned(text, &std::free);
  if (error != 0)
    throw std::runtime_error("[MUNGE] expected munged to answer at " + printable(socket_) +
                             " (LOCKSTEP_MUNGE_SOCKET), but got: " + context.error(error));
  const std::string credential = text;
  return {credential.begin(), credential.end()};
}

void MungeAuthentication::check(std::span<const uint8_t> statement, std::span<const uint8_t> proof) const {
  const SignalGuard without_broken_pipes(SIGPIPE);
  const MungeContext context(socket_);
  const std::string credential(proof.begin(), proof.end());
  void* payload = nullptr;
  int size = 0;
  uid_t user = 0;
  gid_t group = 0;
  const int error =
      context.library().decode(credential.c_str(), context.get(), &payload, &size, &user, &group);
  const MungeBytes owned(payload, &std::free);
  // A credential that has expired, or is a copy, has a payload, too.
  if (error != 0)
    throw InvalidArgument("[MUNGE] expected a credential of this user, but got: " + context.error(error));
  if (user != ::geteuid())
    throw InvalidArgument("[MUNGE] expected a credential of user " + std::to_string(::geteuid()) +
                          ", but got one of user " + std::to_string(user));
  const std::span given(static_cast<const uint8_t*>(payload), static_cast<size_t>(std::max(size, 0)));
  if (!std::ranges::equal(given, statement))
    throw InvalidArgument("[MUNGE] expected a credential for this connection, but got one for another");
}

}  // namespace lockstep
