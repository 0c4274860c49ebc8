#include "lockstep/runtime/backends/local_backend.h"

#include <algorithm>

#include "lockstep/runtime/collectives/internal/local_sum.h"

namespace lockstep {
namespace {

using Arrival = ReplicaRendezvous::Arrival;

/// The elements of a dense tensor in memory order, whatever its strides.
at::Tensor flat_elements(const at::Tensor& tensor) {
  return tensor.as_strided({tensor.numel()}, {1}, tensor.storage_offset());
}

/// Whether elements [a, b) in memory order are the same elements on every rank.
bool have_same_order(const std::vector<Arrival>& arrivals, size_t index) {
  const at::Tensor& first = arrivals[0].outputs[index];
  return first.is_non_overlapping_and_dense() &&
         std::all_of(arrivals.begin(), arrivals.end(), [&](const Arrival& arrival) {
           return arrival.outputs[index].strides() == first.strides();
         });
}

/// Number of elements in each part of this tensor's reduction.
int64_t elements_of_a_part(const std::vector<Arrival>& arrivals, size_t index, LocalAlgorithm algorithm) {
  const at::Tensor& first = arrivals[0].outputs[index];
  const int64_t all = first.numel();
  if (algorithm == LocalAlgorithm::kOneDevice || !have_same_order(arrivals, index)) return all;
  bool on_cpu = true;
  bool on_one_gpu = true;
  for (const auto& arrival : arrivals) {
    const at::Device device = arrival.outputs[index].device();
    if (device.is_cpu() != first.is_cpu()) return all;
    on_cpu = on_cpu && device.is_cpu();
    on_one_gpu = on_one_gpu && device == first.device();
  }
  if (on_cpu) return slice_elements(first, /*is_cut=*/true);
  // Each GPU sums a share. On a single GPU, shares would only launch more kernels.
  const auto ranks = static_cast<int64_t>(arrivals.size());
  return on_one_gpu ? all : (all + ranks - 1) / ranks;
}

/// Sums in replica order on `device`, then copies to all.
void reduce_slices(c10d::ReduceOp::RedOpType op, std::vector<at::Tensor>& slices, at::Device device) {
  at::Tensor sum =
      slices[0].device() == device ? slices[0] : slices[0].to(device, /*non_blocking=*/false, /*copy=*/true);
  for (size_t rank = 1; rank < slices.size(); ++rank) accumulate(op, sum, slices[rank]);
  if (op == c10d::ReduceOp::AVG) sum.div_(static_cast<int64_t>(slices.size()));
  for (auto& slice : slices) {
    if (!slice.is_same(sum)) slice.copy_(sum);
  }
}

ReplicaRendezvous::Work reduction_of(std::vector<Arrival>& arrivals, c10d::ReduceOp::RedOpType op,
                                     LocalAlgorithm algorithm, DeviceStreams& streams) {
  struct Part {
    size_t index;
    int64_t begin;  // in elements
    int64_t count;
    size_t owner;  // the rank on whose device the sum is made
  };
  std::vector<Part> parts;
  for (size_t index = 0; index < arrivals[0].outputs.size(); ++index) {
    const at::Tensor& tensor = arrivals[0].outputs[index];
    if (tensor.numel() == 0) continue;
    check_own_memory(arrivals, index, 0);
    const int64_t per_part = elements_of_a_part(arrivals, index, algorithm);
    for (int64_t begin = 0; begin < tensor.numel(); begin += per_part) {
      const size_t owner = tensor.is_cpu() ? 0 : static_cast<size_t>(begin / per_part);
      parts.push_back({index, begin, std::min(per_part, tensor.numel() - begin), owner});
    }
  }
  const int num_parts = static_cast<int>(parts.size());
  return {num_parts,
          [&arrivals, op, parts = std::move(parts), streams = streams_of(arrivals, streams)](int number) {
            const Part& part = parts[static_cast<size_t>(number)];
            run_on_devices(arrivals, streams, [&] {
              std::vector<at::Tensor> slices;
              slices.reserve(arrivals.size());
              for (auto& arrival : arrivals) {
                const at::Tensor& tensor = arrival.outputs[part.index];
                slices.push_back(part.count == tensor.numel()
                                     ? tensor
                                     : flat_elements(tensor).narrow(0, part.begin, part.count));
              }
              reduce_slices(op, slices, slices[part.owner].device());
            });
          }};
}

/// Elements that one part of a reduce-scatter adds up for one rank.
struct ScatteredSlice {
  size_t rank;
  int64_t begin;  // in elements
  int64_t count;

  at::Tensor of(const at::Tensor& tensor) const { return slice_of(tensor, begin, count); }
};

std::vector<ScatteredSlice> scattered_slices(const std::vector<Arrival>& arrivals) {
  std::vector<ScatteredSlice> slices;
  for (size_t rank = 0; rank < arrivals.size(); ++rank) {
    const at::Tensor& output = arrivals[rank].outputs[0];
    const bool is_cut = can_be_cut(output) &&
                        std::all_of(arrivals.begin(), arrivals.end(),
                                    [&](const Arrival& arrival) { return can_be_cut(arrival.inputs[rank]); });
    const int64_t most = slice_elements(output, is_cut);
    for (int64_t begin = 0; begin < output.numel(); begin += most)
      slices.push_back({rank, begin, std::min(most, output.numel() - begin)});
  }
  return slices;
}

ReplicaRendezvous::Work scatter_of(std::vector<Arrival>& arrivals, c10d::ReduceOp::RedOpType op,
                                   DeviceStreams& streams) {
  check_own_memory(arrivals, 0, 0);
  auto slices = scattered_slices(arrivals);
  const int num_parts = static_cast<int>(slices.size());
  return {num_parts,
          [&arrivals, op, slices = std::move(slices), streams = streams_of(arrivals, streams)](int part) {
            const ScatteredSlice& slice = slices[static_cast<size_t>(part)];
            run_on_devices(arrivals, streams, [&] {
              const at::Tensor output = slice.of(arrivals[slice.rank].outputs[0]);
              // The output may be one of the inputs.
              at::Tensor sum = slice.of(arrivals[0].inputs[slice.rank])
                                   .to(output.device(), /*non_blocking=*/false, /*copy=*/true);
              for (size_t from = 1; from < arrivals.size(); ++from)
                accumulate(op, sum, slice.of(arrivals[from].inputs[slice.rank]));
              if (op == c10d::ReduceOp::AVG) sum.div_(static_cast<int64_t>(arrivals.size()));
              output.copy_(sum);
            });
          }};
}

/// One part for each rank: `copy(arrival)` fills in that rank's outputs.
ReplicaRendezvous::Work copies(std::vector<Arrival>& arrivals, DeviceStreams& streams,
                               std::function<void(std::vector<Arrival>&, Arrival&)> copy) {
  return {static_cast<int>(arrivals.size()),
          [&arrivals, copy = std::move(copy), streams = streams_of(arrivals, streams)](int rank) {
            run_on_devices(arrivals, streams, [&] { copy(arrivals, arrivals[static_cast<size_t>(rank)]); });
          }};
}

}  // namespace

LocalBackend::LocalBackend(const std::shared_ptr<ReplicaRendezvous>& rendezvous, int rank,
                           LocalAlgorithm algorithm, std::shared_ptr<DeviceStreams> streams)
    : RendezvousBackend({rank, rendezvous->size()}, rank, rendezvous),
      algorithm_(algorithm),
      streams_(std::move(streams)) {}

ReplicaRendezvous::MakeWork LocalBackend::reduction(c10d::ReduceOp::RedOpType op, std::string) {
  return [op, algorithm = algorithm_, streams = streams_](std::vector<Arrival>& arrivals) {
    return reduction_of(arrivals, op, algorithm, *streams);
  };
}

ReplicaRendezvous::MakeWork LocalBackend::broadcast_from(int source, std::string) {
  return [root = static_cast<size_t>(source), streams = streams_](std::vector<Arrival>& arrivals) {
    return copies(arrivals, *streams, [root](std::vector<Arrival>& all, Arrival& to) {
      if (&to == &all[root]) return;
      for (size_t i = 0; i < to.outputs.size(); ++i) to.outputs[i].copy_(all[root].inputs[i]);
    });
  };
}

ReplicaRendezvous::MakeWork LocalBackend::gathering(std::string) {
  return [streams = streams_](std::vector<Arrival>& arrivals) {
    return copies(arrivals, *streams, [](std::vector<Arrival>& all, Arrival& to) {
      for (size_t from = 0; from < all.size(); ++from) {
        if (to.fills_output(from)) to.outputs[from].copy_(all[from].inputs[0]);
      }
    });
  };
}

ReplicaRendezvous::MakeWork LocalBackend::scattering(c10d::ReduceOp::RedOpType op, std::string) {
  return
      [op, streams = streams_](std::vector<Arrival>& arrivals) { return scatter_of(arrivals, op, *streams); };
}

ReplicaRendezvous::MakeWork LocalBackend::exchanging(std::string) {
  return [streams = streams_](std::vector<Arrival>& arrivals) {
    check_pairs(arrivals, 0);
    return copies(arrivals, *streams, [](std::vector<Arrival>& all, Arrival& to) {
      const auto rank = static_cast<size_t>(&to - all.data());
      for (size_t from = 0; from < all.size(); ++from) to.outputs[from].copy_(all[from].inputs[rank]);
    });
  };
}

ReplicaRendezvous::MakeWork LocalBackend::meeting(std::string) {
  return [](std::vector<Arrival>&) { return ReplicaRendezvous::Work{}; };
}

LocalChannel::LocalChannel(int size, LocalAlgorithm algorithm, std::chrono::milliseconds timeout)
    : RendezvousChannel(size, timeout) {
  for (int rank = 0; rank < size; ++rank) {
    backends_.push_back(c10::make_intrusive<LocalBackend>(rendezvous(), rank, algorithm, streams()));
  }
}

}  // namespace lockstep
