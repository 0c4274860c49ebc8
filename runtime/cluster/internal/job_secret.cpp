#include "lockstep/runtime/cluster/internal/job_secret.h"

// C library headers, for their types.
#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstdint>
#include <optional>
#include <span>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/text_excerpt.h"
#include "lockstep/runtime/base/net/message_authentication.h"
#include "lockstep/runtime/cluster/internal/user_secret.h"

namespace lockstep {
namespace {

constexpr char kHowToSetToken[] =
    "set LOCKSTEP_JOB_TOKEN to the same secret for all processes of the job: make one with `export "
    "LOCKSTEP_JOB_TOKEN=$(openssl rand -hex 32)`, or with scripts/make_token.sh";

/// An address of a job, and what uses it.
struct JobAddress {
  std::string user;
  std::string host;
};

bool is_loopback(const std::string& host) {
  if (host == "localhost") return true;
  in_addr ipv4{};
  if (inet_pton(AF_INET, host.c_str(), &ipv4) == 1) return ntohl(ipv4.s_addr) >> 24 == IN_LOOPBACKNET;
  in6_addr ipv6{};
  return inet_pton(AF_INET6, host.c_str(), &ipv6) == 1 && IN6_IS_ADDR_LOOPBACK(&ipv6);
}

/// Returns an address by which other machines might reach the job, if there is one.
std::optional<JobAddress> find_open_address(const ClusterResolver& resolver, const ClusterOptions& options) {
  const ClusterSpec spec = resolver.cluster_spec();
  for (const auto& [job, tasks] : spec.jobs()) {
    for (const auto& [index, address] : tasks)
      if (!is_loopback(address.host)) return JobAddress{job + " " + std::to_string(index), address.host};
  }
  const auto master = resolver.master();
  if (master && !is_loopback(master->host)) return JobAddress{"worker 0", master->host};
  if (!options.address.empty() && !is_loopback(options.address))
    return JobAddress{"this process (LOCKSTEP_ADDRESS)", options.address};
  return std::nullopt;
}

}  // namespace

std::string job_secret(const ClusterResolver& resolver, const ClusterOptions& options,
                       const Environment& environment) {
  if (!options.token.empty()) {
    check_job_token(options.token, "ClusterOptions::token");
    return options.token;
  }
  if (const auto open = find_open_address(resolver, options)) {
    throw InvalidArgument("[cluster] expected a job token, as the address of " + open->user + ", " +
                          excerpt(open->host) +
                          ", is not a loopback address, but got none: " + kHowToSetToken);
  }
  try {
    // The prefix keeps the text from being empty.
    const std::string job = "job " + resolver.job_id();
    const auto key = user_secret(environment)
                         .derive_key("Lockstep job on loopback",
                                     std::span(reinterpret_cast<const uint8_t*>(job.data()), job.size()));
    return JobToken::from_text({key.begin(), key.end()}).hex();
  } catch (const InvalidArgument& error) {
    throw InvalidArgument("[cluster] cannot make a secret for this job, which has no token: " +
                          std::string(error.what()) + "; or " + kHowToSetToken);
  }
}

}  // namespace lockstep
