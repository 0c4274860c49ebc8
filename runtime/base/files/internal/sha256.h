#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace lockstep {

/// The SHA-256 (FIPS 180-4) of bytes that come piece by piece. Throws std::bad_alloc where OpenSSL has no
/// memory. Used by one thread at a time.
class Sha256 {
 public:
  Sha256();
  void update(const void* bytes, size_t count);
  /// Of all since the last call, as 64 hexadecimal digits; begins anew.
  std::string finish();

 private:
  struct Free {
    void operator()(void* context) const;
  };
  std::unique_ptr<void, Free> context_;
};

std::string sha256(std::string_view bytes);

}  // namespace lockstep
