#include "lockstep/runtime/base/net/secret_grant.h"

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

}  // namespace lockstep
