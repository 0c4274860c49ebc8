#include "lockstep/runtime/base/net/record_cipher.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <memory>
#include <new>

#ifdef LOCKSTEP_HAS_IPSEC_MB
#include <intel-ipsec-mb.h>
#endif

namespace lockstep {
namespace {

/// With valid arguments, this can fail only if memory runs out.
void expect_cipher_success(int result) {
  if (result != 1) throw std::bad_alloc();
}

class OpenSslCipher final : public RecordCipher {
 public:
  explicit OpenSslCipher(Direction direction)
      : encrypts_(direction == Direction::kEncrypt ? 1 : 0), context_(EVP_CIPHER_CTX_new()) {
    if (!context_) throw std::bad_alloc();
  }

  void set_key(const Key& key) override {
    expect_cipher_success(
        EVP_CipherInit_ex(context_.get(), EVP_aes_128_gcm(), nullptr, key.data(), nullptr, encrypts_));
  }

  void begin(const Nonce& nonce, std::span<const uint8_t> header) override {
    expect_cipher_success(EVP_CipherInit_ex(context_.get(), nullptr, nullptr, nullptr, nonce.data(), -1));
    int count = 0;
    expect_cipher_success(
        EVP_CipherUpdate(context_.get(), nullptr, &count, header.data(), static_cast<int>(header.size())));
  }

  void process(std::span<const uint8_t> from, uint8_t* into) override {
    if (from.empty()) return;  // OpenSSL takes an empty text for the end
    int count = 0;
    expect_cipher_success(
        EVP_CipherUpdate(context_.get(), into, &count, from.data(), static_cast<int>(from.size())));
  }

  void write_tag(std::span<uint8_t, kTagBytes> tag) override {
    int count = 0;
    expect_cipher_success(EVP_CipherFinal_ex(context_.get(), tag.data(), &count));  // adds no bytes
    expect_cipher_success(EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_GET_TAG, kTagBytes, tag.data()));
  }

  bool check_tag(std::span<const uint8_t, kTagBytes> tag) override {
    std::array<uint8_t, kTagBytes> expected{};
    std::copy(tag.begin(), tag.end(), expected.begin());
    expect_cipher_success(
        EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_SET_TAG, kTagBytes, expected.data()));
    int count = 0;
    uint8_t nothing = 0;
    return EVP_CipherFinal_ex(context_.get(), &nothing, &count) == 1;
  }

 private:
  struct Free {
    void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
  };

  const int encrypts_;
  const std::unique_ptr<EVP_CIPHER_CTX, Free> context_;
};

#ifdef LOCKSTEP_HAS_IPSEC_MB

/// The library's functions for this processor, which a manager holds.
struct MultiBufferFunctions {
  aes_gcm_pre_t set_key;
  aes_gcm_init_t begin;
  aes_gcm_enc_dec_update_t encrypt, decrypt;
  aes_gcm_enc_dec_finalize_t end_encrypting, end_decrypting;
};

/// Returns nullptr if the processor has no VAES: the library is not faster than OpenSSL then.
const MultiBufferFunctions* multi_buffer_functions() {
  static const std::unique_ptr<const MultiBufferFunctions> functions = [] {
    struct Free {
      void operator()(IMB_MGR* manager) const { free_mb_mgr(manager); }
    };
    std::unique_ptr<const MultiBufferFunctions> found;
    const std::unique_ptr<IMB_MGR, Free> manager(alloc_mb_mgr(0));
    if (!manager) return found;
    init_mb_mgr_auto(manager.get(), nullptr);
    constexpr auto kNeeded = IMB_FEATURE_VAES | IMB_FEATURE_VPCLMULQDQ;
    if (imb_get_errno(manager.get()) != 0 || (manager->features & kNeeded) != kNeeded) return found;
    found.reset(new MultiBufferFunctions{manager->gcm128_pre, manager->gcm128_init,
                                         manager->gcm128_enc_update, manager->gcm128_dec_update,
                                         manager->gcm128_enc_finalize, manager->gcm128_dec_finalize});
    return found;
  }();
  return functions.get();
}

class MultiBufferCipher final : public RecordCipher {
 public:
  MultiBufferCipher(const MultiBufferFunctions& functions, Direction direction)
      : functions_(functions), encrypts_(direction == Direction::kEncrypt) {}

  ~MultiBufferCipher() override {
    OPENSSL_cleanse(&key_, sizeof(key_));
    OPENSSL_cleanse(&text_, sizeof(text_));
  }

  void set_key(const Key& key) override { functions_.set_key(key.data(), &key_); }

  void begin(const Nonce& nonce, std::span<const uint8_t> header) override {
    functions_.begin(&key_, &text_, nonce.data(), header.data(), header.size());
  }

  void process(std::span<const uint8_t> from, uint8_t* into) override {
    (encrypts_ ? functions_.encrypt : functions_.decrypt)(&key_, &text_, into, from.data(), from.size());
  }

  void write_tag(std::span<uint8_t, kTagBytes> tag) override {
    functions_.end_encrypting(&key_, &text_, tag.data(), kTagBytes);
  }

  bool check_tag(std::span<const uint8_t, kTagBytes> tag) override {
    std::array<uint8_t, kTagBytes> expected{};
    functions_.end_decrypting(&key_, &text_, expected.data(), kTagBytes);
    return CRYPTO_memcmp(tag.data(), expected.data(), kTagBytes) == 0;
  }

 private:
  const MultiBufferFunctions& functions_;
  const bool encrypts_;
  // The library stores to multiples of these bytes; its header says so to some compilers only.
  alignas(64) gcm_key_data key_{};
  alignas(64) gcm_context_data text_{};
};

#endif

}  // namespace

std::unique_ptr<RecordCipher> make_openssl_cipher(RecordCipher::Direction direction) {
  return std::make_unique<OpenSslCipher>(direction);
}

std::unique_ptr<RecordCipher> make_vector_cipher([[maybe_unused]] RecordCipher::Direction direction) {
#ifdef LOCKSTEP_HAS_IPSEC_MB
  if (const auto* functions = multi_buffer_functions())
    return std::make_unique<MultiBufferCipher>(*functions, direction);
#endif
  return nullptr;
}

std::unique_ptr<RecordCipher> make_record_cipher(RecordCipher::Direction direction) {
  auto cipher = make_vector_cipher(direction);
  return cipher ? std::move(cipher) : make_openssl_cipher(direction);
}

}  // namespace lockstep
