#include "lockstep/runtime/cluster/internal/job_secret.h"

// C library headers, for their types.
#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/text_excerpt.h"
#include "lockstep/runtime/base/net/message_authentication.h"
#include "lockstep/runtime/base/net/secret_request.h"
#include "lockstep/runtime/cluster/internal/certificate_authentication.h"
#include "lockstep/runtime/cluster/internal/munge_authentication.h"
#include "lockstep/runtime/cluster/internal/user_secret.h"

namespace lockstep {
namespace {

constexpr char kHowToSetToken[] =
    "set LOCKSTEP_JOB_TOKEN to the same secret for all processes of the job: make one with `export "
    "LOCKSTEP_JOB_TOKEN=$(openssl rand -hex 32)`, or with scripts/make_token.sh. If munged runs on all "
    "machines "
    "of the job, you may set LOCKSTEP_MUNGE=1 instead; if you have a certificate, LOCKSTEP_CERTIFICATE, "
    "LOCKSTEP_CERTIFICATE_KEY and LOCKSTEP_CERTIFICATE_AUTHORITY";

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

/// Returns a secret from which `secret` cannot be found.
std::string derive_secret(const JobToken& secret, std::string_view salt, std::string_view info) {
  const auto key =
      secret.derive_key(salt, std::span(reinterpret_cast<const uint8_t*>(info.data()), info.size()));
  return JobToken::from_text({key.begin(), key.end()}).hex();
}

/// Returns how tasks prove whose they are; nullptr if they do not.
std::shared_ptr<const UserAuthentication> find_authentication(const ClusterResolver& resolver,
                                                              const ClusterOptions& options,
                                                              const Environment& environment) {
  if (options.certificate && options.uses_munge.value_or(false))
    throw InvalidArgument(
        "[cluster] expected certificates (LOCKSTEP_CERTIFICATE) or MUNGE (LOCKSTEP_MUNGE=1), but got both");
  if (options.certificate) return std::make_shared<CertificateAuthentication>(*options.certificate);
  const auto is_usual = [&] {
    return options.token.empty() && environment("SLURM_JOB_ID") && resolver.master() &&
           MungeAuthentication::is_present(options.munge_socket);
  };
  if (options.uses_munge ? *options.uses_munge : is_usual())
    return std::make_shared<MungeAuthentication>(options.munge_socket);
  return nullptr;
}

/// Returns the secret that the first task makes and the others get from it.
JobSecret shared_secret(const ClusterResolver& resolver, const ClusterOptions& options,
                        const FirstTask& first, std::shared_ptr<const UserAuthentication> authentication) {
  if (!resolver.master())
    throw InvalidArgument(
        "[cluster] expected the address at which the first task gives out the job's secret, by " +
        authentication->name() + ", but " + resolver.source() + " has none: set MASTER_ADDR and MASTER_PORT");
  const bool trains = resolver.task_type() != "ps";
  if (trains && resolver.rank() == 0) {
    const auto secret = JobToken::random();
    return {secret.hex(),
            std::make_shared<const SecretGrant>(SecretGrant{.authentication = std::move(authentication),
                                                            .job = resolver.job_id(),
                                                            .generation = first.generation,
                                                            .secret = secret})};
  }
  const HostPort address = first.find_address ? first.find_address() : *resolver.master();
  const auto secret =
      request_secret({.host = address.host,
                      .port = address.port,
                      .task = resolver.task_type() + " " + std::to_string(resolver.task_id()),
                      .first_task = resolver.cluster_spec().has_job("chief") ? "chief 0" : "worker 0",
                      .authentication = std::move(authentication),
                      .job = resolver.job_id(),
                      .generation = first.generation,
                      .timeout = options.join_timeout});
  return {secret.hex(), nullptr};
}

}  // namespace

JobSecret job_secret(const ClusterResolver& resolver, const ClusterOptions& options, const FirstTask& first,
                     const Environment& environment) {
  if (!options.token.empty()) check_job_token(options.token, "ClusterOptions::token");
  if (auto authentication = find_authentication(resolver, options, environment)) {
    auto secret = shared_secret(resolver, options, first, std::move(authentication));
    if (!options.token.empty())
      secret.token =
          derive_secret(JobToken::from_text(options.token), "Lockstep job token and secret", secret.token);
    return secret;
  }
  if (!options.token.empty()) return {options.token, nullptr};
  if (const auto open = find_open_address(resolver, options)) {
    throw InvalidArgument("[cluster] expected a job token, as the address of " + open->user + ", " +
                          excerpt(open->host) +
                          ", is not a loopback address, but got none: " + kHowToSetToken);
  }
  try {
    // The prefix keeps the text from being empty.
    const std::string job = "job " + resolver.job_id();
    return {derive_secret(user_secret(environment), "Lockstep job on loopback", job), nullptr};
  } catch (const InvalidArgument& error) {
    throw InvalidArgument("[cluster] cannot make a secret for this job, which has no token: " +
                          std::string(error.what()) + "; or " + kHowToSetToken);
  }
}

}  // namespace lockstep
