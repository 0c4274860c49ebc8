#include "lockstep/runtime/cluster/cluster_options.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <iterator>
#include <set>
#include <string_view>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

constexpr double kLeastTokenBits = 128;

/// Returns the size of the smallest usual alphabet that has a text's characters: decimal or hexadecimal
/// digits, digits and letters of one case, or base64's. A random text may lack a kind of characters by
/// chance.
double alphabet_size(std::string_view text) {
  const auto is_made_of = [&](std::string_view characters) {
    return text.find_first_not_of(characters) == std::string_view::npos;
  };
  if (is_made_of("0123456789")) return 10;
  if (is_made_of("0123456789abcdef") || is_made_of("0123456789ABCDEF")) return 16;
  if (is_made_of("0123456789abcdefghijklmnopqrstuvwxyz")) return 36;
  if (is_made_of("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ")) return 36;
  return 64;
}

/// Estimates the entropy of a text: that of random characters of its kinds, unless it has far fewer different
/// characters than random ones would have.
double token_bits(std::string_view text) {
  const auto length = static_cast<double>(text.size());
  const double alphabet = alphabet_size(text);
  const auto num_different = static_cast<double>(std::set<char>(text.begin(), text.end()).size());
  const double expected_different = alphabet * (1 - std::pow(1 - 1 / alphabet, length));
  return length * std::log2(2 * num_different < expected_different ? num_different : alphabet);
}

std::optional<UserCertificate> find_certificate(const LauncherVariables& variables) {
  constexpr const char* kNames[] = {"LOCKSTEP_CERTIFICATE", "LOCKSTEP_CERTIFICATE_KEY",
                                    "LOCKSTEP_CERTIFICATE_AUTHORITY"};
  const auto is_given = [&](const char* name) { return !variables.find_text(name).value_or("").empty(); };
  const auto given = std::find_if(std::begin(kNames), std::end(kNames), is_given);
  if (given == std::end(kNames)) return std::nullopt;
  const auto missing = std::find_if_not(std::begin(kNames), std::end(kNames), is_given);
  if (missing != std::end(kNames))
    throw InvalidArgument(std::string("[cluster] expected ") + *missing + " together with " + *given +
                          ", but it is not set");
  return UserCertificate{.certificate = variables.text(kNames[0]),
                         .key = variables.text(kNames[1]),
                         .authority = variables.text(kNames[2])};
}

std::optional<bool> find_switch(const LauncherVariables& variables, const char* name) {
  const auto number = variables.find_integer(name, {.least = 0, .most = 1});
  return number ? std::optional(*number == 1) : std::nullopt;
}

}  // namespace

ClusterOptions cluster_options(const Environment& environment) {
  const LauncherVariables variables(environment, "cluster");
  ClusterOptions options;
  options.address = variables.find_text("LOCKSTEP_ADDRESS").value_or("");
  options.token = variables.find_text("LOCKSTEP_JOB_TOKEN").value_or("");
  if (!options.token.empty()) check_job_token(options.token);
  options.certificate = find_certificate(variables);
  options.uses_munge = find_switch(variables, "LOCKSTEP_MUNGE");
  options.munge_socket = variables.find_text("LOCKSTEP_MUNGE_SOCKET").value_or("");
  options.listening_socket = variables.find_integer("LOCKSTEP_LISTEN_FD", {});
  if (const auto timeout =
          variables.find_integer("LOCKSTEP_JOIN_TIMEOUT", {.least = 1, .most = INT_MAX / 1000}))
    options.join_timeout = std::chrono::seconds(*timeout);
  options.uses_shared_memory = find_switch(variables, "LOCKSTEP_SHARED_MEMORY").value_or(true);
  return options;
}

void check_job_token(const std::string& token, const std::string& source) {
  const double bits = token_bits(token);
  if (bits >= kLeastTokenBits) return;
  throw InvalidArgument(
      "[cluster] " + source +
      ": expected a secret of 128 bits or more, such as `openssl rand -hex 32` prints, but got one of " +
      std::to_string(token.size()) + " characters and about " + std::to_string(std::lround(bits)) + " bits");
}

}  // namespace lockstep
