#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace lockstep {

/// Computes the SHA-256 (FIPS 180-4) of bytes given piece by piece. Throws std::bad_alloc if OpenSSL runs out
/// of memory. Not thread-safe.
class Sha256 {
 public:
  Sha256();
  void update(const void* bytes, size_t count);
  /// Returns the hash of all bytes since the last finish() as 64 hexadecimal digits, and starts again.
  std::string finish();

 private:
  struct Free {
    void operator()(void* context) const;
  };
  std::unique_ptr<void, Free> context_;
};

std::string sha256(std::string_view bytes);

}  // namespace lockstep
