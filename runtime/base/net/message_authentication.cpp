#include "lockstep/runtime/base/net/message_authentication.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/kdf.h>
#include <openssl/rand.h>

#include <memory>
#include <new>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

constexpr std::string_view kHexadecimalDigits = "0123456789abcdef";

/// Value of a hexadecimal digit, or at least 16 for any other character.
size_t value_of_hexadecimal_digit(char digit) {
  if (digit >= 'A' && digit <= 'F') return static_cast<size_t>(digit - 'A') + 10;
  return kHexadecimalDigits.find(digit);
}

}  // namespace

std::array<uint8_t, 32> random_bytes() {
  std::array<uint8_t, 32> bytes{};
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1) {
    throw std::runtime_error("expected random bytes from OpenSSL, but it has none");
  }
  return bytes;
}

JobToken::JobToken(std::vector<uint8_t> secret) : secret_(std::move(secret)) {}

JobToken JobToken::from_text(const std::string& text) {
  if (text.empty()) throw InvalidArgument("[JobToken] expected a text, but got an empty one");
  return JobToken(std::vector<uint8_t>(text.begin(), text.end()));
}

JobToken JobToken::random() {
  const auto bytes = random_bytes();
  return JobToken(std::vector<uint8_t>(bytes.begin(), bytes.end()));
}

JobToken JobToken::from_hex(const std::string& digits) {
  if (digits.empty() || digits.size() % 2 != 0) {
    throw InvalidArgument("[JobToken] expected two hexadecimal digits a byte, but got " +
                          std::to_string(digits.size()) + " characters");
  }
  std::vector<uint8_t> secret(digits.size() / 2);
  for (size_t i = 0; i < digits.size(); ++i) {
    const size_t value = value_of_hexadecimal_digit(digits[i]);
    if (value >= 16) {
      throw InvalidArgument("[JobToken] expected hexadecimal digits, but got another character at position " +
                            std::to_string(i));
    }
    secret[i / 2] = static_cast<uint8_t>((secret[i / 2] << 4) | value);
  }
  return JobToken(std::move(secret));
}

std::string JobToken::hex() const {
  std::string digits;
  digits.reserve(secret_.size() * 2);
  for (const uint8_t byte : secret_) {
    digits.push_back(kHexadecimalDigits[byte >> 4]);
    digits.push_back(kHexadecimalDigits[byte & 15]);
  }
  return digits;
}

JobToken::Tag JobToken::tag(std::span<const uint8_t> message) const {
  Tag tag{};
  unsigned int length = 0;
  const uint8_t* made = HMAC(EVP_sha256(), secret_.data(), static_cast<int>(secret_.size()), message.data(),
                             message.size(), tag.data(), &length);
  // With valid arguments, this can fail only if memory runs out.
  if (made == nullptr || length != tag.size()) throw std::bad_alloc();
  return tag;
}

std::array<uint8_t, 32> JobToken::derive_key(std::string_view salt, std::span<const uint8_t> info) const {
  const std::unique_ptr<EVP_PKEY_CTX, decltype(&EVP_PKEY_CTX_free)> context(
      EVP_PKEY_CTX_new_id(EVP_PKEY_HKDF, nullptr), EVP_PKEY_CTX_free);
  std::array<uint8_t, 32> key{};
  size_t size = key.size();
  const auto* salt_bytes = reinterpret_cast<const unsigned char*>(salt.data());
  const bool is_derived =
      context != nullptr && EVP_PKEY_derive_init(context.get()) > 0 &&
      EVP_PKEY_CTX_set_hkdf_md(context.get(), EVP_sha256()) > 0 &&
      EVP_PKEY_CTX_set1_hkdf_salt(context.get(), salt_bytes, static_cast<int>(salt.size())) > 0 &&
      EVP_PKEY_CTX_set1_hkdf_key(context.get(), secret_.data(), static_cast<int>(secret_.size())) > 0 &&
      EVP_PKEY_CTX_add1_hkdf_info(context.get(), info.data(), static_cast<int>(info.size())) > 0 &&
      EVP_PKEY_derive(context.get(), key.data(), &size) > 0;
  if (!is_derived) throw std::bad_alloc();  // as in tag()
  return key;
}

bool JobToken::verify(std::span<const uint8_t> message, std::span<const uint8_t> tag) const {
  const Tag expected = this->tag(message);
  return tag.size() == expected.size() && CRYPTO_memcmp(tag.data(), expected.data(), expected.size()) == 0;
}

}  // namespace lockstep
