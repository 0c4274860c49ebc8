#include "lockstep/runtime/base/net/aes_gcm.h"

#include <openssl/evp.h>

#include <algorithm>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

int length_of(std::span<const uint8_t> bytes) {
  if (bytes.size() > size_t{std::numeric_limits<int>::max()}) {
    throw InvalidArgument("[AesGcm] expected less than 2 GiB, but got " + std::to_string(bytes.size()) +
                          " bytes");
  }
  return static_cast<int>(bytes.size());
}

/// With valid arguments, this can fail only if memory runs out.
void expect_done(int result) {
  if (result != 1) throw std::bad_alloc();
}

/// Begins to encrypt (1) or decrypt (0) under the key that the context has, and reads the header.
void begin(EVP_CIPHER_CTX* context, int encrypts, const AesGcm::Nonce& nonce,
           std::span<const uint8_t> header) {
  int count = 0;
  expect_done(EVP_CipherInit_ex(context, nullptr, nullptr, nullptr, nonce.data(), encrypts));
  expect_done(EVP_CipherUpdate(context, nullptr, &count, header.data(), length_of(header)));
}

}  // namespace

void AesGcm::Free::operator()(evp_cipher_ctx_st* context) const {
  EVP_CIPHER_CTX_free(context);
}

AesGcm::AesGcm(const Key& key) : context_(EVP_CIPHER_CTX_new()) {
  static_assert(std::tuple_size_v<Nonce> == 12, "the length that OpenSSL expects unless told otherwise");
  if (!context_) throw std::bad_alloc();
  if (EVP_CipherInit_ex(context_.get(), EVP_aes_256_gcm(), nullptr, key.data(), nullptr, 1) != 1)
    throw std::runtime_error("expected AES-256-GCM from OpenSSL, but it does not offer it");
}

std::vector<uint8_t> AesGcm::seal(const Nonce& nonce, std::span<const uint8_t> header,
                                  std::span<const uint8_t> text) {
  std::vector<uint8_t> sealed(text.size() + kTagBytes);
  begin(context_.get(), 1, nonce, header);
  int count = 0;
  expect_done(EVP_CipherUpdate(context_.get(), sealed.data(), &count, text.data(), length_of(text)));
  expect_done(EVP_CipherFinal_ex(context_.get(), sealed.data() + text.size(), &count));  // adds no bytes
  expect_done(
      EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_GET_TAG, kTagBytes, sealed.data() + text.size()));
  return sealed;
}

std::optional<std::vector<uint8_t>> AesGcm::open(const Nonce& nonce, std::span<const uint8_t> header,
                                                 std::span<const uint8_t> sealed) {
  if (sealed.size() < kTagBytes) return std::nullopt;
  const auto encrypted = sealed.first(sealed.size() - kTagBytes);
  std::array<uint8_t, kTagBytes> tag{};
  std::copy(sealed.end() - kTagBytes, sealed.end(), tag.begin());

  std::vector<uint8_t> text(
      sealed.size());  // never empty: OpenSSL takes bytes without an output for a header
  begin(context_.get(), 0, nonce, header);
  int count = 0;
  expect_done(EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_SET_TAG, kTagBytes, tag.data()));
  expect_done(EVP_CipherUpdate(context_.get(), text.data(), &count, encrypted.data(), length_of(encrypted)));
  if (EVP_CipherFinal_ex(context_.get(), text.data() + encrypted.size(), &count) != 1) return std::nullopt;
  text.resize(encrypted.size());
  return text;
}

}  // namespace lockstep
