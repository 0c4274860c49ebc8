#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

struct evp_cipher_ctx_st;  // OpenSSL's EVP_CIPHER_CTX

namespace lockstep {

/// AES-256-GCM (NIST SP 800-38D) under one key, by OpenSSL. It encrypts a text, and authenticates the text
/// and a header that is sent in the clear. The key is set up once, not for each text, so that a short text
/// takes a few microseconds.
///
/// Never seal two texts with the same nonce under one key: an attacker who sees both learns their difference,
/// and can forge others from then on (SP 800-38D, appendix A). Not thread-safe.
class AesGcm {
 public:
  using Key = std::array<uint8_t, 32>;
  using Nonce = std::array<uint8_t, 12>;
  static constexpr size_t kTagBytes = 16;

  /// Throws std::runtime_error if OpenSSL does not offer AES-256-GCM.
  explicit AesGcm(const Key& key);

  /// Returns the encrypted text, which is as long as `text`, followed by the tag. Throws InvalidArgument for
  /// 2 GiB or more, as open() does.
  std::vector<uint8_t> seal(const Nonce& nonce, std::span<const uint8_t> header,
                            std::span<const uint8_t> text);

  /// Returns the text that seal() was given, or nullopt if `sealed` is not what seal() returned for this
  /// nonce and header. Safe for untrusted input.
  std::optional<std::vector<uint8_t>> open(const Nonce& nonce, std::span<const uint8_t> header,
                                           std::span<const uint8_t> sealed);

 private:
  struct Free {
    void operator()(evp_cipher_ctx_st* context) const;
  };

  std::unique_ptr<evp_cipher_ctx_st, Free> context_;
};

}  // namespace lockstep
