#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "lockstep/runtime/base/mutex.h"
#include "lockstep/runtime/base/net/descriptor.h"
#include "lockstep/runtime/base/net/secret_grant.h"
#include "lockstep/runtime/base/net/secret_message.h"

namespace lockstep {

/// A request for the job's secret, and the reply once a SecretGranter has made it. Thread-safe.
class SecretCheck {
 public:
  /// Throws std::system_error if the system has no descriptor left.
  SecretCheck(const TlsSession& session, SecretRequest request);

  /// Returns a descriptor that is readable for poll() once there is a reply.
  int descriptor() const { return is_over_.get(); }
  /// Returns the reply; nullopt if there is none yet. Throws what the authentication threw if it could not
  /// check the request.
  std::optional<SecretReply> reply() const;

  /// Checks the request and makes the reply. Blocks as long as the authentication does. Does not throw.
  void run(const SecretGrant& grant) noexcept;

 private:
  SecretReply make_reply(const SecretGrant& grant) const;

  const SecretRequest request_;
  const std::vector<uint8_t> client_statement_;
  const std::vector<uint8_t> server_statement_;
  const Descriptor is_over_;  // an eventfd
  mutable Mutex mutex_;
  std::optional<SecretReply> reply_ LOCKSTEP_GUARDED_BY(mutex_);
  std::exception_ptr error_ LOCKSTEP_GUARDED_BY(mutex_);
};

/// Checks requests for a job's secret on a thread of its own, in order: a check may ask another program, such
/// as munged, and a server's thread must serve its clients even if that program does not answer. Thread-safe.
class SecretGranter {
 public:
  explicit SecretGranter(std::shared_ptr<const SecretGrant> grant);
  /// Blocks until a check that is being made has ended, up to 10 s by MUNGE.
  ~SecretGranter();
  SecretGranter(const SecretGranter&) = delete;
  SecretGranter& operator=(const SecretGranter&) = delete;

  const std::shared_ptr<const SecretGrant>& grant() const { return grant_; }

  /// Lets the thread make the check, unless its owner has gone until then. Does not block.
  void add(const std::shared_ptr<SecretCheck>& check);

 private:
  void serve();

  const std::shared_ptr<const SecretGrant> grant_;
  Mutex mutex_;
  ConditionVariable changed_;
  std::deque<std::weak_ptr<SecretCheck>> checks_ LOCKSTEP_GUARDED_BY(mutex_);
  bool is_closing_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

/// The first task's side of a connection over which a process gets the secret, after the handshake: receives
/// a request and answers it. Not thread-safe.
class SecretGranting {
 public:
  explicit SecretGranting(std::shared_ptr<SecretGranter> granter);

  /// Does what is possible without blocking. Returns true once the answer is sent. Throws InvalidArgument for
  /// bytes that are no request, and what TlsSession and the authentication throw.
  bool advance(TlsSession& session);
  /// Returns whether the answer was the secret.
  bool has_granted() const { return has_granted_; }
  /// Returns the check that the answer waits for; nullptr if it does not wait for one.
  const SecretCheck* awaited_check() const { return check_.get(); }

 private:
  bool receive(TlsSession& session);
  bool make_answer(const TlsSession& session);

  const std::shared_ptr<SecretGranter> granter_;
  std::vector<uint8_t> in_;  // as large as what it is to hold next
  size_t num_received_ = 0;
  std::shared_ptr<SecretCheck> check_;  // while it is being made
  std::vector<uint8_t> out_;            // empty until there is an answer
  size_t num_sent_ = 0;
  bool has_granted_ = false;
};

}  // namespace lockstep
