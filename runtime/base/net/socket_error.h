#pragma once

#include <cerrno>
#include <system_error>

namespace lockstep {

/// Returns true if a call that does not block, and failed with this errno, may succeed later.
inline bool may_succeed_later(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

/// Throws std::system_error. `purpose` names the call, such as "send".
[[noreturn]] inline void throw_socket_error(int error, const char* purpose) {
  throw std::system_error(error, std::generic_category(), purpose);
}
[[noreturn]] inline void throw_socket_error(std::errc error, const char* purpose) {
  throw std::system_error(std::make_error_code(error), purpose);
}

}  // namespace lockstep
