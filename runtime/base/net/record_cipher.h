#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace lockstep {

/// AES-128-GCM (NIST SP 800-38D) in one direction, of texts that come in pieces. Not thread-safe.
class RecordCipher {
 public:
  enum class Direction { kDecrypt, kEncrypt };
  static constexpr size_t kTagBytes = 16;
  using Key = std::array<uint8_t, 16>;
  /// Never encrypt two texts with the same nonce under one key (see AesGcm).
  using Nonce = std::array<uint8_t, 12>;

  RecordCipher() = default;
  virtual ~RecordCipher() = default;
  RecordCipher(const RecordCipher&) = delete;
  RecordCipher& operator=(const RecordCipher&) = delete;

  /// Uses this key from now on. Throws std::bad_alloc if memory runs out, as the other functions may.
  virtual void set_key(const Key& key) = 0;
  /// Begins a text, whose tag authenticates the header, too.
  virtual void begin(const Nonce& nonce, std::span<const uint8_t> header) = 0;
  /// Encrypts or decrypts the next bytes of the text. `into` has room for as many, and may be `from`.
  virtual void process(std::span<const uint8_t> from, uint8_t* into) = 0;
  /// Ends a text that was encrypted.
  virtual void write_tag(std::span<uint8_t, kTagBytes> tag) = 0;
  /// Ends a text that was decrypted. Returns false if it is not what the other end has encrypted.
  virtual bool check_tag(std::span<const uint8_t, kTagBytes> tag) = 0;
};

/// Returns a cipher by OpenSSL, which works on every processor.
std::unique_ptr<RecordCipher> make_openssl_cipher(RecordCipher::Direction direction);

/// Returns a cipher by Intel's IPsec Multi-Buffer library, or nullptr if Lockstep was built without it or the
/// processor has no VAES. Four AES rounds at once make it about four times as fast as OpenSSL 3.0, which does
/// not use these instructions for GCM (3.1 and later do).
std::unique_ptr<RecordCipher> make_vector_cipher(RecordCipher::Direction direction);

/// Returns the faster of the two.
std::unique_ptr<RecordCipher> make_record_cipher(RecordCipher::Direction direction);

}  // namespace lockstep
