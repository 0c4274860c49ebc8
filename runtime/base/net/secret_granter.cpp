#include "lockstep/runtime/base/net/secret_granter.h"

// C library headers, for their types.
#include <sys/eventfd.h>

#include <cerrno>
#include <span>
#include <system_error>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/net/socket_error.h"
#include "lockstep/runtime/base/net/tls_session.h"

namespace lockstep {

SecretCheck::SecretCheck(const TlsSession& session, SecretRequest request)
    : request_(std::move(request)),
      client_statement_(secret_statement(session, SecretEnd::kClient)),
      server_statement_(secret_statement(session, SecretEnd::kServer)),
      is_over_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (is_over_.get() < 0) throw_socket_error(errno, "eventfd");
}

std::optional<SecretReply> SecretCheck::reply() const {
  MutexLock lock(mutex_);
  if (error_) std::rethrow_exception(error_);
  return reply_;
}

SecretReply SecretCheck::make_reply(const SecretGrant& grant) const {
  SecretReply reply;
  try {
    const auto& authentication = *grant.authentication;
    if (request_.source != authentication.name())
      throw InvalidArgument("expected a proof by " + authentication.name() + ", but got another");
    authentication.check(client_statement_, request_.proof);
    if (request_.job != grant.job) throw InvalidArgument("expected a process of this job, but got another");
    reply.proof = authentication.prove(server_statement_);
    reply.secret = grant.secret.hex();
  } catch (const InvalidArgument&) {  // the answer tells other users nothing
  }
  return reply;
}

void SecretCheck::run(const SecretGrant& grant) noexcept {
  std::optional<SecretReply> reply;
  std::exception_ptr error;
  try {
    reply = make_reply(grant);
  } catch (...) {
    error = std::current_exception();
  }
  {
    MutexLock lock(mutex_);
    reply_ = std::move(reply);
    error_ = error;
  }
  eventfd_write(is_over_.get(), 1);
}

SecretGranter::SecretGranter(std::shared_ptr<const SecretGrant> grant)
    : grant_(std::move(grant)), thread_([this] { serve(); }) {}

SecretGranter::~SecretGranter() {
  {
    MutexLock lock(mutex_);
    is_closing_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void SecretGranter::add(const std::shared_ptr<SecretCheck>& check) {
  MutexLock lock(mutex_);
  checks_.push_back(check);
  changed_.notify_all();
}

void SecretGranter::serve() {
  for (;;) {
    std::shared_ptr<SecretCheck> check;
    {
      MutexLock lock(mutex_);
      while (checks_.empty() && !is_closing_) changed_.wait(mutex_);
      if (is_closing_) return;
      check = checks_.front().lock();
      checks_.pop_front();
    }
    if (check) check->run(*grant_);
  }
}

SecretGranting::SecretGranting(std::shared_ptr<SecretGranter> granter)
    : granter_(std::move(granter)), in_(kSecretSizeBytes) {}

bool SecretGranting::advance(TlsSession& session) {
  if (out_.empty()) {
    if (!check_ && !receive(session)) return false;
    if (!make_answer(session)) return false;
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
      if (!count) throw_socket_error(std::errc::connection_reset, "receive");
      if (*count == 0) return false;
      num_received_ += *count;
    }
    if (num_received_ > kSecretSizeBytes) return true;
    const size_t size = decode_secret_size(std::span(in_).first<kSecretSizeBytes>());
    if (size == 0) throw InvalidArgument("expected a request, but got an empty one");
    in_.resize(kSecretSizeBytes + size);
  }
}

/// Returns whether there is an answer.
bool SecretGranting::make_answer(const TlsSession& session) {
  if (!check_) {
    auto request = decode_secret_request(std::span(in_).subspan(kSecretSizeBytes));
    check_ = std::make_shared<SecretCheck>(session, std::move(request));
    granter_->add(check_);
    return false;
  }
  const auto reply = check_->reply();
  if (!reply) return false;
  has_granted_ = !reply->secret.empty();
  out_ = encode(*reply);
  check_.reset();
  return true;
}

}  // namespace lockstep
