#include "lockstep/runtime/cluster/internal/certificate_authentication.h"

#include <openssl/bio.h>
#include <openssl/cms.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <array>
#include <new>
#include <stdexcept>
#include <system_error>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/files/internal/regular_file.h"
#include "lockstep/runtime/base/internal/text_excerpt.h"
#include "lockstep/runtime/base/internal/utf8_text.h"

namespace lockstep {

struct OpensslDeleter {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(X509_STORE* store) const { X509_STORE_free(store); }
  void operator()(CMS_ContentInfo* message) const { CMS_ContentInfo_free(message); }
  void operator()(STACK_OF(X509) * certificates) const { sk_X509_pop_free(certificates, X509_free); }
};
template <typename T>
using OpensslPointer = std::unique_ptr<T, OpensslDeleter>;
using CertificateStack = OpensslPointer<STACK_OF(X509)>;

namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 20;
// 112 bits: RSA of 2048 bits or more, and no SHA-1.
constexpr int kSecurityLevel = 2;
constexpr unsigned int kSignature = CMS_BINARY | CMS_DETACHED;

void free_stack(STACK_OF(X509) * certificates) {
  sk_X509_free(certificates);
}

template <typename T>
OpensslPointer<T> owned(T* object) {
  if (object == nullptr) throw std::bad_alloc();
  return OpensslPointer<T>(object);
}

OpensslPointer<BIO> view_of(const void* bytes, size_t size) {
  // An empty BIO of memory would be one to write to.
  return owned(BIO_new_mem_buf(size > 0 ? bytes : "", static_cast<int>(size)));
}

/// Returns the reason of the last failure, and forgets all of them.
std::string openssl_reason() {
  const unsigned long error = ERR_peek_last_error();
  const char* reason = ERR_reason_error_string(error);
  ERR_clear_error();
  return reason != nullptr ? reason : "no reason";
}

[[noreturn]] void refuse_pem(const char* variable, const std::string& path, const std::string& expected,
                             const std::string& given) {
  throw InvalidArgument(std::string("[cluster] ") + variable + ": expected " + printable(path) + " to be " +
                        expected + ", but got " + given);
}

std::string read_pem(const char* variable, const std::string& path) {
  try {
    return RegularFile(path).read_start(kMaxFileBytes);
  } catch (const std::runtime_error& error) {  // with the path
    throw InvalidArgument(std::string("[cluster] ") + variable + ": " + error.what());
  }
}

/// Reads one or more certificates.
CertificateStack read_certificates(const char* variable, const std::string& path) {
  const std::string pem = read_pem(variable, path);
  const auto bio = view_of(pem.data(), pem.size());
  auto certificates = owned(sk_X509_new_null());
  ERR_clear_error();
  while (X509* certificate = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr))
    sk_X509_push(certificates.get(), certificate);
  const bool is_at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  if (!is_at_end || sk_X509_num(certificates.get()) == 0)
    refuse_pem(variable, path, "a certificate in PEM", is_at_end ? "none" : openssl_reason());
  ERR_clear_error();
  return certificates;
}

/// Called by OpenSSL for the passphrase of a key, which nobody is there to type.
int no_passphrase(char* /*text*/, int /*size*/, int /*is_writing*/, void* was_asked) {
  *static_cast<bool*>(was_asked) = true;
  return -1;
}

OpensslPointer<EVP_PKEY> read_key(const std::string& path) {
  constexpr const char* kVariable = "LOCKSTEP_CERTIFICATE_KEY";
  std::string pem = read_pem(kVariable, path);
  bool was_asked = false;
  ERR_clear_error();
  OpensslPointer<EVP_PKEY> key(
      PEM_read_bio_PrivateKey(view_of(pem.data(), pem.size()).get(), nullptr, no_passphrase, &was_asked));
  OPENSSL_cleanse(pem.data(), pem.size());
  if (key) return key;
  const std::string reason = openssl_reason();
  refuse_pem(kVariable, path, "a private key in PEM without a passphrase",
             was_asked ? "one with a passphrase" : reason);
}

std::string subject_of(const X509* certificate) {
  const auto bio = owned(BIO_new(BIO_s_mem()));
  X509_NAME_print_ex(bio.get(), X509_get_subject_name(certificate), 0, XN_FLAG_RFC2253);
  char* text = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &text);
  return quoted_excerpt({text, static_cast<size_t>(size)});
}

}  // namespace

struct CertificateAuthentication::Credentials {
  explicit Credentials(const UserCertificate& files);

  CertificateStack chain;  // between the authority and the certificate
  OpensslPointer<X509> certificate;
  OpensslPointer<EVP_PKEY> key;
  OpensslPointer<X509_STORE> authority;
};

CertificateAuthentication::Credentials::Credentials(const UserCertificate& files)
    : chain(read_certificates("LOCKSTEP_CERTIFICATE", files.certificate)),
      certificate(sk_X509_shift(chain.get())),
      key(read_key(files.key)),
      authority(owned(X509_STORE_new())) {
  if (X509_check_private_key(certificate.get(), key.get()) != 1)
    refuse_pem("LOCKSTEP_CERTIFICATE_KEY", files.key,
               "the key of the certificate " + subject_of(certificate.get()), "another key");
  if (X509_NAME_entry_count(X509_get_subject_name(certificate.get())) == 0)
    refuse_pem("LOCKSTEP_CERTIFICATE", files.certificate,
               "a certificate with a subject, which names the user", "one without");
  const auto trusted = read_certificates("LOCKSTEP_CERTIFICATE_AUTHORITY", files.authority);
  for (int i = 0; i < sk_X509_num(trusted.get()); ++i)
    X509_STORE_add_cert(authority.get(), sk_X509_value(trusted.get(), i));
  X509_VERIFY_PARAM* rules = X509_STORE_get0_param(authority.get());
  X509_VERIFY_PARAM_set_purpose(rules, X509_PURPOSE_SSL_CLIENT);
  X509_VERIFY_PARAM_set_auth_level(rules, kSecurityLevel);
}

CertificateAuthentication::CertificateAuthentication(const UserCertificate& files)
    : credentials_(std::make_unique<const Credentials>(files)) {
  try {
    constexpr std::array<uint8_t, 1> kStatement{};
    check(kStatement, prove(kStatement));
  } catch (const std::exception& error) {
    throw InvalidArgument("[cluster] LOCKSTEP_CERTIFICATE: expected " + printable(files.certificate) +
                          " to be accepted by LOCKSTEP_CERTIFICATE_AUTHORITY, but got: " + error.what());
  }
}

CertificateAuthentication::~CertificateAuthentication() = default;

std::vector<uint8_t> CertificateAuthentication::prove(std::span<const uint8_t> statement) const {
  ERR_clear_error();
  const OpensslPointer<CMS_ContentInfo> message(
      CMS_sign(credentials_->certificate.get(), credentials_->key.get(), credentials_->chain.get(),
               view_of(statement.data(), statement.size()).get(), kSignature | CMS_NOSMIMECAP));
  unsigned char* der = nullptr;
  const int size = message ? i2d_CMS_ContentInfo(message.get(), &der) : -1;
  if (size < 0) throw std::runtime_error("[certificates] cannot sign: " + openssl_reason());
  std::vector<uint8_t> proof(der, der + size);
  OPENSSL_free(der);
  return proof;
}

void CertificateAuthentication::check(std::span<const uint8_t> statement,
                                      std::span<const uint8_t> proof) const {
  ERR_clear_error();
  const unsigned char* der = proof.data();
  const OpensslPointer<CMS_ContentInfo> message(
      d2i_CMS_ContentInfo(nullptr, &der, static_cast<long>(proof.size())));
  const auto refuse = [](const std::string& given) {
    throw InvalidArgument("[certificates] expected a signature with a certificate of this user, but got: " +
                          given);
  };
  if (!message) refuse("something else");
  if (CMS_verify(message.get(), nullptr, credentials_->authority.get(),
                 view_of(statement.data(), statement.size()).get(), nullptr, kSignature) != 1) {
    // OpenSSL adds the reason why a certificate is refused as a text to its error.
    const char* detail = nullptr;
    int flags = 0;
    ERR_peek_last_error_data(&detail, &flags);
    const std::string text = (flags & ERR_TXT_STRING) != 0 && detail != nullptr ? detail : "";
    const std::string reason = openssl_reason();
    refuse(reason + (text.empty() ? "" : " (" + excerpt(text) + ")"));
  }
  // The stack does not own the certificates.
  const std::unique_ptr<STACK_OF(X509), decltype(&free_stack)> signers(CMS_get0_signers(message.get()),
                                                                       &free_stack);
  if (sk_X509_num(signers.get()) != 1) refuse("several signatures");
  const X509* signer = sk_X509_value(signers.get(), 0);
  const X509* own = credentials_->certificate.get();
  if (X509_NAME_cmp(X509_get_subject_name(signer), X509_get_subject_name(own)) != 0)
    refuse("one of the subject " + subject_of(signer) + " instead of " + subject_of(own));
}

}  // namespace lockstep
