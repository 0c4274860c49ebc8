#pragma once

#include <vector>

#include "lockstep/benchmarks/scaling/all_reduce_model.h"
#include "lockstep/benchmarks/scaling/line_fit.h"
#include "lockstep/benchmarks/scaling/step_model.h"

namespace lockstep::benchmarks {

/// One measured exchange of the library: the small all-gather in which the workers compare their calls, and
/// the sum of a bucket.
struct ExchangeSample {
  double bytes = 0;  ///< of gradients, before they are compressed
  double seconds = 0;
  double cpu_seconds = 0;  ///< of one process, all of its threads together
};

/// Exchanges between processes of this machine, over loopback, with one compression.
struct LoopbackFit {
  int num_ranks = 2;
  Line seconds;      ///< over ring_bytes() of the gradients
  Line cpu_seconds;  ///< likewise, of one process
};

LoopbackFit fit_loopback(int num_ranks, const std::vector<ExchangeSample>& samples);

/// An exchange among the processes that the fit is of. `cores_each` is how many cores a process has to
/// itself, at most 1, since threads that share an operator wait for the one that is stopped.
ExchangeTimes exchange_over_loopback(const LoopbackFit& fit, double bytes, double cores_each);

/// The processor time of an exchange, and the bytes that it sends.
struct ExchangeCost {
  double fixed_seconds = 0;          ///< once an exchange
  double message_seconds = 0;        ///< a step of a ring, besides the link's latency
  double seconds_per_ring_byte = 0;  ///< of the gradients: as fast as the software can send and add up
  double seconds_per_byte = 0;       ///< of the gradients: compressing and decompressing
  double sent_share = 1;             ///< bytes sent, for each byte of gradients
  double cpu_seconds_per_message = 0;
  double cpu_seconds_per_ring_byte = 0;
};

/// Out of fits for several numbers of ranks, the least number first, with the same compression: an exchange
/// has 3 (n - 1) steps, n - 1 of the all-gather and 2 (n - 1) of the ring. Bytes count as the first fit has
/// them. One fit cannot tell the fixed part from the steps: all counts as steps.
ExchangeCost cost_of(const std::vector<LoopbackFit>& fits, double conversion_seconds_per_byte,
                     double sent_share);

/// An exchange among `num_ranks` machines with a worker each. Sending takes as long as the slower of the
/// software and the link.
ExchangeTimes exchange_between_machines(const ExchangeCost& cost, int num_ranks, double bytes,
                                        const Link& link);

}  // namespace lockstep::benchmarks
