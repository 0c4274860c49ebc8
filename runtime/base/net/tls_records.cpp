#include "lockstep/runtime/base/net/tls_records.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include <algorithm>
#include <array>
#include <new>
#include <string>
#include <string_view>
#include <system_error>

namespace lockstep {
namespace {

// The types of contents (RFC 8446, section 5.1).
constexpr uint8_t kAlertType = 21;
constexpr uint8_t kHandshakeType = 22;
constexpr uint8_t kUserDataType = 23;
// A KeyUpdate that does not ask for one in return (section 4.6.3).
constexpr std::array<uint8_t, 5> kKeyUpdate{24, 0, 0, 1, 0};
constexpr uint8_t kCloseNotify = 0;

/// With valid arguments, this can fail only if memory runs out.
void expect_success(int result) {
  if (result != 1) throw std::bad_alloc();
}

[[noreturn]] void fail_record() {
  throw std::system_error(std::make_error_code(std::errc::bad_message), "receive");
}

/// HKDF-Expand-Label (RFC 8446, section 7.1) with an empty context.
void expand_label(const TrafficSecret& secret, std::string label, std::span<uint8_t> into) {
  struct Freed {
    void operator()(EVP_KDF* kdf) const { EVP_KDF_free(kdf); }
    void operator()(EVP_KDF_CTX* context) const { EVP_KDF_CTX_free(context); }
  };
  const std::unique_ptr<EVP_KDF, Freed> kdf(EVP_KDF_fetch(nullptr, "TLS13-KDF", nullptr));
  const std::unique_ptr<EVP_KDF_CTX, Freed> context(EVP_KDF_CTX_new(kdf.get()));
  if (!context) throw std::bad_alloc();
  int mode = EVP_KDF_HKDF_MODE_EXPAND_ONLY;
  std::string digest = "SHA256";
  std::string prefix = "tls13 ";
  TrafficSecret key = secret;
  const auto octets = [](const char* name, auto& bytes) {
    return OSSL_PARAM_construct_octet_string(name, bytes.data(), bytes.size());
  };
  const std::array parameters{OSSL_PARAM_construct_int(OSSL_KDF_PARAM_MODE, &mode),
                              OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest.data(), 0),
                              octets(OSSL_KDF_PARAM_KEY, key),
                              octets(OSSL_KDF_PARAM_PREFIX, prefix),
                              octets(OSSL_KDF_PARAM_LABEL, label),
                              OSSL_PARAM_construct_end()};
  const int result = EVP_KDF_derive(context.get(), into.data(), into.size(), parameters.data());
  OPENSSL_cleanse(key.data(), key.size());
  expect_success(result);
}

std::array<uint8_t, TlsRecord::kHeaderBytes> header_of(size_t content_size) {
  const size_t size = content_size + TlsRecord::kTypeBytes + TlsRecord::kTagBytes;
  // The version is that of TLS 1.2 in every record of TLS 1.3.
  return {kUserDataType, 3, 3, static_cast<uint8_t>(size >> 8), static_cast<uint8_t>(size)};
}

}  // namespace

TrafficKey::TrafficKey(const TrafficSecret& secret, Direction direction)
    : secret_(secret), cipher_(make_record_cipher(direction)) {
  use_secret();
}

TrafficKey::~TrafficKey() {
  OPENSSL_cleanse(secret_.data(), secret_.size());
}

void TrafficKey::use_secret() {
  RecordCipher::Key key{};
  expand_label(secret_, "key", key);
  expand_label(secret_, "iv", mask_);
  cipher_->set_key(key);
  OPENSSL_cleanse(key.data(), key.size());
  num_records_ = 0;
}

void TrafficKey::update() {
  TrafficSecret next{};
  expand_label(secret_, "traffic upd", next);
  secret_ = next;
  OPENSSL_cleanse(next.data(), next.size());
  use_secret();
}

RecordCipher& TrafficKey::begin_record(std::span<const uint8_t> header) {
  auto nonce = mask_;
  for (size_t i = 0; i < sizeof(num_records_); ++i)
    nonce[nonce.size() - 1 - i] ^= static_cast<uint8_t>(num_records_ >> (8 * i));
  ++num_records_;
  cipher_->begin(nonce, header);
  return *cipher_;
}

size_t TlsSealer::seal(std::span<const std::span<const uint8_t>> parts, size_t begin,
                       std::span<uint8_t> into) {
  return seal_content(kUserDataType, parts, begin, into);
}

size_t TlsSealer::seal_key_update(std::span<uint8_t> into) {
  const std::span<const uint8_t> content(kKeyUpdate);
  const size_t size = seal_content(kHandshakeType, {&content, 1}, 0, into);
  key_.update();
  return size + TlsRecord::kOverheadBytes;
}

size_t TlsSealer::seal_content(uint8_t type, std::span<const std::span<const uint8_t>> parts, size_t begin,
                               std::span<uint8_t> into) {
  size_t size = 0;
  for (const auto& part : parts) size += part.size();
  size = std::min(size - begin, TlsRecord::kMaxContentBytes);

  const auto header = header_of(size);
  std::copy(header.begin(), header.end(), into.begin());
  auto& cipher = key_.begin_record(header);
  uint8_t* next = into.data() + header.size();
  size_t left = size;
  for (const auto& part : parts) {
    const size_t skipped = std::min(begin, part.size());
    begin -= skipped;
    const auto content = part.subspan(skipped, std::min(part.size() - skipped, left));
    cipher.process(content, next);
    next += content.size();
    left -= content.size();
  }
  cipher.process({&type, TlsRecord::kTypeBytes}, next);
  cipher.write_tag(
      std::span<uint8_t, TlsRecord::kTagBytes>(next + TlsRecord::kTypeBytes, TlsRecord::kTagBytes));
  return size;
}

size_t TlsOpener::record_size(std::span<const uint8_t> bytes) {
  if (bytes.size() < TlsRecord::kHeaderBytes) return 0;
  const size_t size = TlsRecord::kHeaderBytes + (size_t{bytes[3]} << 8) + bytes[4];
  if (bytes[0] != kUserDataType || size < TlsRecord::kOverheadBytes || size > TlsRecord::kMaxBytes)
    fail_record();
  return size;
}

std::optional<size_t> TlsOpener::open(std::span<const uint8_t> record, uint8_t* into) {
  const auto header = record.first(TlsRecord::kHeaderBytes);
  const auto tag = record.last<TlsRecord::kTagBytes>();
  const size_t size = content_size(record);
  auto& cipher = key_.begin_record(header);
  cipher.process(record.subspan(header.size(), size), into);
  uint8_t type = 0;
  cipher.process(record.subspan(header.size() + size, TlsRecord::kTypeBytes), &type);
  if (!cipher.check_tag(tag)) fail_record();

  const std::span<const uint8_t> content(into, size);
  if (type == kUserDataType) return size;
  if (type == kHandshakeType &&
      std::equal(content.begin(), content.end(), kKeyUpdate.begin(), kKeyUpdate.end())) {
    key_.update();
    return 0;
  }
  if (type == kAlertType && size == 2 && content[1] == kCloseNotify) return std::nullopt;
  // Anything else, such as padded content, is sent by no process of this job.
  fail_record();
}

}  // namespace lockstep
