#include "lockstep/runtime/base/net/secret_grant.h"

#include <system_error>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/net/secret_message.h"
#include "lockstep/runtime/base/net/tls_session.h"

namespace lockstep {

const JobToken& secret_channel_token() {
  static const JobToken token = JobToken::from_text("lockstep: known to everybody");
  return token;
}

std::vector<uint8_t> secret_statement(const TlsSession& session, SecretEnd end) {
  const std::string_view label =
      end == SecretEnd::kClient ? "lockstep secret client" : "lockstep secret server";
  std::vector<uint8_t> statement(label.begin(), label.end());
  statement.insert(statement.end(), session.binding().begin(), session.binding().end());
  return statement;
}

SecretGranting::SecretGranting(std::shared_ptr<const SecretGrant> grant)
    : grant_(std::move(grant)), in_(kSecretSizeBytes) {}

bool SecretGranting::advance(TlsSession& session) {
  if (out_.empty()) {
    if (!receive(session)) return false;
    answer(session);
  }
  while (num_sent_ < out_.size()) {
    const std::span<const uint8_t> rest = std::span(out_).subspan(num_sent_);
    const size_t count = session.send(std::span(&rest, 1));
    if (count == 0) return false;
    num_sent_ += count;
  }
  return true;
}

/// Returns whether the whole request has arrived.
bool SecretGranting::receive(TlsSession& session) {
  for (;;) {
    while (num_received_ < in_.size()) {
      const auto count = session.receive(std::span(in_).subspan(num_received_));
      if (!count) throw std::system_error(std::make_error_code(std::errc::connection_reset), "receive");
      if (*count == 0) return false;
      num_received_ += *count;
    }
    if (num_received_ > kSecretSizeBytes) return true;
    const size_t size = decode_secret_size(std::span(in_).first<kSecretSizeBytes>());
    if (size == 0) throw InvalidArgument("expected a request, but got an empty one");
    in_.resize(kSecretSizeBytes + size);
  }
}

void SecretGranting::answer(const TlsSession& session) {
  const auto request = decode_secret_request(std::span(in_).subspan(kSecretSizeBytes));
  SecretReply reply;
  try {
    const auto& authentication = *grant_->authentication;
    if (request.source != authentication.name())
      throw InvalidArgument("expected a proof by " + authentication.name() + ", but got another");
    authentication.check(secret_statement(session, SecretEnd::kClient), request.proof);
    if (request.job != grant_->job) throw InvalidArgument("expected a process of this job, but got another");
    reply.proof = authentication.prove(secret_statement(session, SecretEnd::kServer));
    reply.secret = grant_->secret.hex();
    has_granted_ = true;
  } catch (const InvalidArgument&) {  // the answer tells other users nothing
  }
  out_ = encode(reply);
}

}  // namespace lockstep
