#pragma once

#include <torch/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/runtime/backends/backend_channel.h"
#include "lockstep/runtime/backends/local_backend.h"
#include "lockstep/runtime/collectives/collective_channel.h"
#include "lockstep/runtime/collectives/reduce_op.h"
#include "lockstep/runtime/devices/device.h"

namespace lockstep {

class GradientCompression;

using Devices = std::vector<LogicalDevice>;

/// Groups of replicas, each of which communicates by itself; see Mesh::groups() and Mesh::groups_across().
struct ReplicaGroups {
  std::string where;  ///< Follows the names of collectives in errors, such as " over the axis shard".
  std::vector<std::vector<int>> groups;  ///< Ids, ascending. Each replica is in one group.
};

/// Moves values between replicas: makes the channels that replicas use inside a run, and does the reductions
/// that you ask for between runs.
///
/// Example:
///
///     struct MyOps : CrossDeviceOps {
///       MyOps() : CrossDeviceOps(/*num_packs=*/0) {}
///       std::string name() const override { return "MyOps"; }
///       void check_devices(const Devices&) const override {}
///       std::unique_ptr<CollectiveChannel> make_channel(const Devices& devices,
///                                                       std::chrono::milliseconds timeout) const override;
///     };
class CrossDeviceOps {
 public:
  /// If `num_packs` is 0, batch_reduce() reduces each tensor by itself. Otherwise it concatenates the tensors
  /// and cuts them into that many equal packs, the remainder in the last. Throws InvalidArgument if
  /// `num_packs` is negative.
  explicit CrossDeviceOps(int num_packs);
  virtual ~CrossDeviceOps() = default;

  virtual std::string name() const = 0;
  /// Throws InvalidArgument naming the device if this op cannot serve the devices.
  virtual void check_devices(const Devices& devices) const = 0;
  /// Returns a new channel among replicas on `devices`, with a backend for each in that order. `timeout`
  /// limits every wait in it. For BackendAllReduce, blocks until its ranks are connected, and throws
  /// InvalidArgument as check_devices() does, and BackendError naming the op and the devices if they cannot
  /// connect.
  virtual std::unique_ptr<CollectiveChannel> make_channel(const Devices& devices,
                                                          std::chrono::milliseconds timeout) const = 0;
  /// Returns a channel among the replicas on `devices` in which each group has a channel of its own. Default:
  /// one of make_channel() for each. Throws as make_channel() does.
  virtual std::unique_ptr<CollectiveChannel> make_grouped_channel(const Devices& devices,
                                                                  const ReplicaGroups& groups,
                                                                  std::chrono::milliseconds timeout) const;
  /// The same as make_channel() for an optimizer's gradients. `compression`, which may be null, makes them
  /// smaller when they leave a device or a process. Default: make_channel(), so that they are not compressed.
  virtual std::unique_ptr<CollectiveChannel> make_gradient_channel(
      const Devices& devices, std::chrono::milliseconds timeout,
      const std::shared_ptr<GradientCompression>& compression) const;

  /// Reduces one value for each replica, in replica order, and returns the sum or mean on each of
  /// `destinations`. Values must agree in shape. The mean of several integers is floating-point. A single
  /// value is passed to broadcast() unchanged. The sum of sparse values is sparse and coalesced. Throws
  /// InvalidArgument if there is no value or no destination, if shapes differ, or if only some values are
  /// sparse.
  std::vector<torch::Tensor> reduce(ReduceOp op, const std::vector<torch::Tensor>& values,
                                    const Devices& destinations) const;
  /// Reduces several values to the same destinations, packed; `values[i]` holds one value for each replica.
  /// Sparse values are reduced one by one. Throws as reduce().
  std::vector<std::vector<torch::Tensor>> batch_reduce(ReduceOp op,
                                                       const std::vector<std::vector<torch::Tensor>>& values,
                                                       const Devices& destinations) const;
  /// Returns copies of `value` on each of `destinations`, none of which share memory. The first one on the
  /// device of `value` is `value` itself. Throws InvalidArgument if there is no destination.
  std::vector<torch::Tensor> broadcast(const torch::Tensor& value, const Devices& destinations) const;

 protected:
  /// Returns the sum of two or more values that agree in shape. The default sums on the given destination, in
  /// order.
  virtual torch::Tensor sum(const std::vector<torch::Tensor>& values, const LogicalDevice& destination) const;

 private:
  std::vector<std::vector<torch::Tensor>> batch_reduce_dense(
      ReduceOp op, const std::vector<std::vector<torch::Tensor>>& values, const Devices& destinations) const;

  int num_packs_;
};

struct ReductionToOneDeviceOptions {
  /// Device that makes the sums of reductions between runs; empty: the first destination. Inside a run, the
  /// first replica's device makes them.
  std::string reduce_to_device;
  /// Sums two or more values of one shape on one device, for reductions between runs. Empty: in order.
  std::function<torch::Tensor(const std::vector<torch::Tensor>&)> accumulation;
};

/// Makes the sum on one device and copies it to the others. Works on all devices.
///
/// Example:
///
///     auto ops = std::make_shared<ReductionToOneDevice>();
///     MirroredStrategy strategy(cpu_devices(2), {.cross_device_ops = ops});
class ReductionToOneDevice : public CrossDeviceOps {
 public:
  explicit ReductionToOneDevice(ReductionToOneDeviceOptions options = {});
  std::string name() const override { return "ReductionToOneDevice"; }
  void check_devices(const Devices&) const override {}
  std::unique_ptr<CollectiveChannel> make_channel(const Devices& devices,
                                                  std::chrono::milliseconds timeout) const override;

 protected:
  torch::Tensor sum(const std::vector<torch::Tensor>& values,
                    const LogicalDevice& destination) const override;

 private:
  ReductionToOneDeviceOptions options_;
};

struct PackingOptions {
  int num_packs = 1;
};

/// Lets every replica sum its share of the elements and copy it to the others. Works on all devices. On CPUs,
/// the replicas' threads sum their shares at the same time.
///
/// Example:
///
///     auto ops = std::make_shared<HierarchicalCopyAllReduce>();
///     MirroredStrategy strategy(cpu_devices(4), {.cross_device_ops = ops});
class HierarchicalCopyAllReduce : public CrossDeviceOps {
 public:
  explicit HierarchicalCopyAllReduce(PackingOptions options = {}) : CrossDeviceOps(options.num_packs) {}
  std::string name() const override { return "HierarchicalCopyAllReduce"; }
  void check_devices(const Devices&) const override {}
  std::unique_ptr<CollectiveChannel> make_channel(const Devices& devices,
                                                  std::chrono::milliseconds timeout) const override;
};

/// Uses the collectives of a c10d backend, with one rank for each replica: NCCL, or a backend of your own.
/// With MultiWorkerMirroredStrategy, the replicas of all workers are ranks of one backend.
///
/// Example:
///
///     auto ops = std::make_shared<BackendAllReduce>("MyBackend", [](const BackendRequest& request) {
///       return make_my_backend(request.store, request.rank, request.size, request.timeout);
///     });
///     MirroredStrategy strategy({}, {.cross_device_ops = ops});
class BackendAllReduce : public CrossDeviceOps {
 public:
  /// `name` appears in errors and describe(). `factory` makes the backend of one rank (see BackendFactory);
  /// BackendChannel lists its requirements. It is called again if a failed run needs new connections.
  BackendAllReduce(std::string name, BackendFactory factory, PackingOptions options = {})
      : CrossDeviceOps(options.num_packs), name_(std::move(name)), factory_(std::move(factory)) {}
  std::string name() const override { return name_; }
  /// Accepts all devices: the factory may refuse some by throwing InvalidArgument.
  void check_devices(const Devices&) const override {}
  std::unique_ptr<CollectiveChannel> make_channel(const Devices& devices,
                                                  std::chrono::milliseconds timeout) const override;
  /// Throws InvalidArgument if `compression` does more than round to a shorter dtype; null is fine.
  void check_compression(const std::shared_ptr<GradientCompression>& compression) const;
  /// Rounds gradients to the compression's wire_dtype(), if it has one; else they are not compressed.
  std::unique_ptr<CollectiveChannel> make_gradient_channel(
      const Devices& devices, std::chrono::milliseconds timeout,
      const std::shared_ptr<GradientCompression>& compression) const override;
  /// The same as make_channel() for a configuration of your own, whose op and factory are replaced by this
  /// object's.
  std::unique_ptr<CollectiveChannel> open_channel(BackendChannelConfig config) const;
  /// Prepares this process for channels, for instance by setting environment variables. It is called before a
  /// channel connects. Call it earlier yourself, before you start threads that may read them.
  virtual void prepare() const {}

 private:
  std::string name_;
  BackendFactory factory_;
};

/// Uses NCCL, with one communicator rank for each replica. Needs a build with CUDA, and a GPU of its own for
/// each replica. Before the first channel connects, it sets variables of NCCL and of LibTorch's process
/// groups that the environment does not set: a failing collective then does not end the process, and kernels
/// of several communicators run in the order of their launches.
///
/// Example:
///
///     auto ops = std::make_shared<NcclAllReduce>();
///     MirroredStrategy strategy({"gpu:0", "gpu:1"}, {.cross_device_ops = ops});
class NcclAllReduce : public BackendAllReduce {
 public:
  explicit NcclAllReduce(PackingOptions options = {});
  void check_devices(const Devices& devices) const override;
  void prepare() const override;
};

/// Makes an op by name: nccl, hierarchical_copy or reduction_to_one_device. Returns null for auto, which
/// leaves the choice to the strategy. Throws InvalidArgument listing the names for any other name.
std::shared_ptr<CrossDeviceOps> make_cross_device_ops(const std::string& name);

}  // namespace lockstep
