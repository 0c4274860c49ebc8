#pragma once

#include <vector>

#include "lockstep/benchmarks/scaling/line_fit.h"
#include "lockstep/benchmarks/scaling/step_model.h"
#include "lockstep/runtime/exchange/algorithm_choice.h"
#include "lockstep/training/layouts/all_reduce_model.h"

namespace lockstep::benchmarks {

/// One measured sum of a bucket by the library's exchanges.
struct ExchangeSample {
  double bytes = 0;  ///< of gradients, before they are compressed
  double seconds = 0;
  double cpu_seconds = 0;  ///< of one process, all of its threads together
};

/// Returns the plan by which rank 0 of the library sums `bytes` under a policy.
ExchangePlan plan_of_library(const ExchangePolicy& policy, int num_ranks, double bytes);

/// Returns the bytes that the plan sends from rank 0.
double sent_bytes(const ExchangePolicy& policy, int num_ranks, double bytes);

/// Exchanges between processes of this machine, with one compression.
struct LocalFit {
  int num_ranks = 2;
  ExchangePolicy policy;
  double sent_share = 1;  ///< bytes exchanged, for each byte of gradients
  Line seconds;           ///< over sent_bytes()
  Line cpu_seconds;       ///< likewise, of one process
};

/// Fits both lines of `fit`, whose other members are given.
LocalFit fit_exchanges(LocalFit fit, const std::vector<ExchangeSample>& samples);

/// An exchange among the processes that the fit is of. `cores_each` is how many cores a process has to
/// itself, at most 1, since threads that share an operator wait for the one that is stopped.
ExchangeTimes local_exchange(const LocalFit& fit, double bytes, double cores_each);

/// The cost of the software in an exchange between machines, and the bytes that it sends.
struct ExchangeCost {
  double fixed_seconds = 0;  ///< once an exchange
  /// A round, besides the link's latency, and a byte sent, with adding. The time of the software alone.
  LinkCosts software;
  double seconds_per_byte = 0;  ///< of the gradients: compressing and decompressing
  double sent_share = 1;        ///< bytes sent, for each byte of gradients
  double cpu_fixed_seconds = 0;
  double cpu_seconds_per_round = 0;
  double cpu_seconds_per_sent_byte = 0;
};

/// Derives the cost from fits for 2 ranks over TCP with forced algorithms. Recursive doubling has one round
/// and halving two, and both send as many bytes. A line over the rounds therefore separates the fixed part
/// from that of a round. The cost of bytes is that of halving, which adds half of what it sends for any
/// number of ranks. `bytes_fit`, by halving as well, may be of compressed gradients.
ExchangeCost cost_of(const LocalFit& doubling, const LocalFit& halving, const LocalFit& bytes_fit,
                     double conversion_seconds_per_byte);

/// An exchange among `num_ranks` machines with a worker each, by the plan that the library would make.
/// Sending takes as long as the slower of the software and the link.
ExchangeTimes exchange_between_machines(const ExchangeCost& cost, int num_ranks, double bytes,
                                        const DeviceLink& link);

}  // namespace lockstep::benchmarks
