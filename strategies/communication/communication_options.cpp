#include "lockstep/strategies/communication/communication_options.h"

#include <algorithm>
#include <array>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/communication/internal/exchange_algorithm.h"

namespace lockstep {
namespace {

constexpr std::array kNames{std::pair{"auto", CommunicationImplementation::kAuto},
                            std::pair{"ring", CommunicationImplementation::kRing},
                            std::pair{"exchange", CommunicationImplementation::kExchange},
                            std::pair{"nccl", CommunicationImplementation::kNccl}};

}  // namespace

CommunicationOptions CommunicationOptions::merge(const CommunicationOptions& overrides) const {
  const CommunicationOptions defaults;
  CommunicationOptions merged = *this;
  if (overrides.bytes_per_pack != defaults.bytes_per_pack) merged.bytes_per_pack = overrides.bytes_per_pack;
  if (overrides.timeout != defaults.timeout) merged.timeout = overrides.timeout;
  if (overrides.implementation != defaults.implementation) merged.implementation = overrides.implementation;
  if (overrides.exchange_algorithm != defaults.exchange_algorithm)
    merged.exchange_algorithm = overrides.exchange_algorithm;
  if (overrides.encrypt != defaults.encrypt) merged.encrypt = overrides.encrypt;
  if (overrides.gradient_compression) merged.gradient_compression = overrides.gradient_compression;
  return merged;
}

BucketOptions CommunicationOptions::packed(BucketOptions buckets) const {
  if (bytes_per_pack == 0) return buckets;
  buckets.bucket_bytes = bytes_per_pack + 1;  // buckets are closed once they reach their size
  buckets.first_bucket_bytes =
      std::min(buckets.or_else(kDefaultBuckets).first_bucket_bytes, buckets.bucket_bytes);
  return buckets;
}

void CommunicationOptions::check() const {
  if (bytes_per_pack < 0) {
    throw InvalidArgument("[CommunicationOptions] expected bytes_per_pack of 0 or more, but got " +
                          std::to_string(bytes_per_pack));
  }
  if (timeout && *timeout <= std::chrono::milliseconds::zero()) {
    throw InvalidArgument("[CommunicationOptions] expected a timeout of more than 0 ms, but got " +
                          std::to_string(timeout->count()) + " ms");
  }
  const bool is_exchange = implementation == CommunicationImplementation::kAuto ||
                           implementation == CommunicationImplementation::kExchange;
  if (parse_exchange_algorithm(exchange_algorithm) && !is_exchange) {
    throw InvalidArgument("[CommunicationOptions] expected the communication auto or exchange with the " +
                          exchange_algorithm + " exchange algorithm, but got " +
                          communication_name(implementation));
  }
}

std::optional<PlanAlgorithm> parse_exchange_algorithm(const std::string& name) {
  if (name == "auto") return std::nullopt;
  std::string known = "auto";
  for (const auto algorithm : algorithms_for(CollectiveKind::kAllReduce)) {
    if (name == to_string(algorithm)) return algorithm;
    known += ", " + to_string(algorithm);
  }
  throw InvalidArgument("[CommunicationOptions] expected an exchange algorithm out of " + known +
                        ", but got '" + name + "'");
}

CommunicationImplementation parse_communication(const std::string& name) {
  for (const auto& [known, implementation] : kNames) {
    if (name == known) return implementation;
  }
  throw InvalidArgument("[CommunicationOptions] expected auto, ring, exchange or nccl, but got '" + name +
                        "'");
}

std::string communication_name(CommunicationImplementation implementation) {
  for (const auto& [name, known] : kNames) {
    if (implementation == known) return name;
  }
  return "unknown";
}

}  // namespace lockstep
