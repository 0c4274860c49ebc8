#include "lockstep/runtime/base/files/internal/sha256.h"

#include <openssl/evp.h>

#include <array>
#include <cstdint>
#include <new>

namespace lockstep {
namespace {

EVP_MD_CTX* digest_context(void* context) {
  return static_cast<EVP_MD_CTX*>(context);
}

/// With valid arguments, this can fail only if memory runs out.
void expect_done(int result) {
  if (result != 1) throw std::bad_alloc();
}

}  // namespace

void Sha256::Free::operator()(void* context) const {
  EVP_MD_CTX_free(digest_context(context));
}

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  if (!context_) throw std::bad_alloc();
  expect_done(EVP_DigestInit_ex(digest_context(context_.get()), EVP_sha256(), nullptr));
}

void Sha256::update(const void* bytes, size_t count) {
  expect_done(EVP_DigestUpdate(digest_context(context_.get()), bytes, count));
}

std::string Sha256::finish() {
  std::array<uint8_t, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  expect_done(EVP_DigestFinal_ex(digest_context(context_.get()), digest.data(), &size));
  expect_done(EVP_DigestInit_ex(digest_context(context_.get()), EVP_sha256(), nullptr));
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (unsigned int i = 0; i < size; ++i) text += {kDigits[digest[i] >> 4], kDigits[digest[i] & 15]};
  return text;
}

std::string sha256(std::string_view bytes) {
  Sha256 digest;
  digest.update(bytes.data(), bytes.size());
  return digest.finish();
}

}  // namespace lockstep
