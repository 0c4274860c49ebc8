#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "lockstep/runtime/base/net/record_cipher.h"

namespace lockstep {

/// The secret of one direction of a TLS 1.3 connection (RFC 8446, section 7.1), for a cipher with SHA-256.
using TrafficSecret = std::array<uint8_t, 32>;

/// The layout of a record of TLS 1.3 (RFC 8446, section 5) with AES-128-GCM.
struct TlsRecord {
  static constexpr size_t kHeaderBytes = 5;
  static constexpr size_t kTypeBytes = 1;  // follows the content
  static constexpr size_t kTagBytes = RecordCipher::kTagBytes;
  static constexpr size_t kMaxContentBytes = size_t{16} * 1024;
  static constexpr size_t kOverheadBytes = kHeaderBytes + kTypeBytes + kTagBytes;
  static constexpr size_t kMaxBytes = kMaxContentBytes + kOverheadBytes;
};

/// The key of one direction, by which its records are encrypted or decrypted in order.
class TrafficKey {
 public:
  using Direction = RecordCipher::Direction;

  /// Derives the key from the secret (RFC 8446, section 7.3). Throws std::bad_alloc if memory runs out.
  TrafficKey(const TrafficSecret& secret, Direction direction);
  ~TrafficKey();
  TrafficKey(const TrafficKey&) = delete;
  TrafficKey& operator=(const TrafficKey&) = delete;

  /// Replaces the key by the one that follows it (RFC 8446, section 7.2).
  void update();
  /// Returns the number of records that were begun with this key.
  uint64_t num_records() const { return num_records_; }

  /// Begins the next record, which has this header, and returns the cipher for the rest of it.
  RecordCipher& begin_record(std::span<const uint8_t> header);

 private:
  void use_secret();

  TrafficSecret secret_;
  RecordCipher::Nonce mask_{};  // added to the record's number, gives its nonce
  uint64_t num_records_ = 0;
  const std::unique_ptr<RecordCipher> cipher_;
};

/// Encrypts the records of one direction.
class TlsSealer {
 public:
  explicit TlsSealer(const TrafficSecret& secret) : key_(secret, TrafficKey::Direction::kEncrypt) {}

  /// Writes one record to `into`, which has room for kMaxBytes. Its content is the bytes of the parts, in
  /// order, from byte `begin` on, as many as fit. Returns the number of these bytes.
  size_t seal(std::span<const std::span<const uint8_t>> parts, size_t begin, std::span<uint8_t> into);
  /// Writes the record that announces another key, uses that key from then on, and returns the record's size.
  size_t seal_key_update(std::span<uint8_t> into);
  /// Returns the number of records with the current key.
  uint64_t num_records() const { return key_.num_records(); }

 private:
  size_t seal_content(uint8_t type, std::span<const std::span<const uint8_t>> parts, size_t begin,
                      std::span<uint8_t> into);

  TrafficKey key_;
};

/// Decrypts the records of one direction. Safe for untrusted input.
class TlsOpener {
 public:
  explicit TlsOpener(const TrafficSecret& secret) : key_(secret, TrafficKey::Direction::kDecrypt) {}

  /// Returns the size of the record that begins with these bytes, header included, and 0 if too few of them
  /// have arrived to tell. Throws std::system_error with bad_message if no record begins so.
  static size_t record_size(std::span<const uint8_t> bytes);
  /// Returns the size of a record's content.
  static size_t content_size(std::span<const uint8_t> record) {
    return record.size() - TlsRecord::kOverheadBytes;
  }

  /// Decrypts a whole record, of a size that record_size() gave. Writes the content to `into`, which has room
  /// for content_size() bytes, or is where the record holds the content. Returns how many of these bytes were
  /// sent by the user: none if the record changes the key, and nullopt if it says that no bytes follow.
  /// Throws std::system_error with bad_message if the record was changed on the way; `into` holds anything
  /// then.
  std::optional<size_t> open(std::span<const uint8_t> record, uint8_t* into);

 private:
  TrafficKey key_;
};

}  // namespace lockstep
