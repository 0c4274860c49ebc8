#include "lockstep/runtime/base/net/secret_request.h"

#include <algorithm>
#include <array>
#include <system_error>
#include <thread>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/deadline.h"
#include "lockstep/runtime/base/internal/number_text.h"
#include "lockstep/runtime/base/net/address_lookup.h"
#include "lockstep/runtime/base/net/secret_message.h"
#include "lockstep/runtime/base/net/secure_socket.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using Clock = StreamSocket::Clock;

void receive_all(SecureSocket& socket, std::span<uint8_t> into, Clock::time_point deadline) {
  if (!socket.receive({into}, deadline))
    throw std::system_error(std::make_error_code(std::errc::connection_reset), "receive");
}

std::string failure_text(const std::system_error& error) {
  return error.code() == std::errc::timed_out ? "it does not answer" : error.code().message();
}

class SecretRequesting {
 public:
  explicit SecretRequesting(const SecretRequestOptions& options)
      : options_(options), deadline_(deadline_after(options.timeout)) {}

  JobToken run() const {
    std::string reason;
    for (milliseconds pause{10};; pause = std::min(pause * 2, milliseconds(500))) {
      try {
        return ask();
      } catch (const HandshakeError& error) {
        // A server of the job's last start may be about to end.
        if (error.reason() != HandshakeError::Reason::kIdentity) refuse(error.what());
        reason =
            "it gives no secret to this start of the job: all of its processes need the same source of the "
            "secret, which is " +
            options_.authentication->name() + " here";
      } catch (const std::system_error& error) {
        // If the time ends within an attempt, the answer to an earlier one says more.
        if (reason.empty() || error.code() != std::errc::timed_out) reason = failure_text(error);
      }
      if (Clock::now() + pause >= deadline_) {
        const double seconds = std::chrono::duration<double>(options_.timeout).count();
        refuse("not within " + short_number(seconds) + " s: " + reason);
      }
      std::this_thread::sleep_for(pause);
    }
  }

 private:
  JobToken ask() const {
    SecureSocket socket(StreamSocket::connect(options_.host, options_.port, deadline_));
    socket.meet(secret_channel_token(),
                {.purpose = kSecretPurpose,
                 .client = options_.task,
                 .server = kSecretPurpose,
                 .generation = options_.generation},
                deadline_);
    const auto& authentication = *options_.authentication;
    const auto prove = [&] {
      try {
        return authentication.prove(secret_statement(socket.session(), SecretEnd::kClient));
      } catch (const std::runtime_error& error) {
        refuse(error.what());
      }
    };
    const auto request =
        encode(SecretRequest{.job = options_.job, .source = authentication.name(), .proof = prove()});
    socket.send({request}, deadline_);
    const auto reply = receive_reply(socket);
    if (reply.secret.empty())
      refuse("it refuses this process: it takes only processes of the same user, by " +
             authentication.name() + ", and of the same job (LOCKSTEP_JOB_ID)");
    try {
      authentication.check(secret_statement(socket.session(), SecretEnd::kServer), reply.proof);
      return JobToken::from_hex(reply.secret);
    } catch (const InvalidArgument& error) {
      refuse(error.what());
    }
  }

  SecretReply receive_reply(SecureSocket& socket) const {
    std::array<uint8_t, kSecretSizeBytes> size{};
    receive_all(socket, size, deadline_);
    try {
      std::vector<uint8_t> message(decode_secret_size(size));
      receive_all(socket, message, deadline_);
      return decode_secret_reply(message);
    } catch (const InvalidArgument& error) {
      refuse(error.what());
    }
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw ClusterError("[job secret] " + options_.task + " did not get the job's secret from " +
                       options_.first_task + " (" + endpoint_text(options_.host, options_.port) +
                       "): " + why);
  }

  const SecretRequestOptions& options_;
  const Clock::time_point deadline_;
};

}  // namespace

JobToken request_secret(const SecretRequestOptions& options) {
  return SecretRequesting(options).run();
}

}  // namespace lockstep
