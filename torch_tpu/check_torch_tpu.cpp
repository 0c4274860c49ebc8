#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/cluster/tpu_cluster_resolver.h"
#include "lockstep/torch_tpu/torch_tpu.h"

// Trains a small convolutional network on torch_tpu's device and on the CPU, with the same parameters and
// batches, and sums a tensor over the processes. Ends with 0 if they agree, with 2 for a wrong set-up, and
// with 6 if they differ.

namespace lockstep::torch_tpu {
namespace {

constexpr int kSteps = 5;
/// A tenth of the learning rate. Adam divides small gradients by their own size, so it magnifies rounding: an
/// operator that computes something else differs by about the rate in each step.
constexpr double kTolerance = 1e-4;
constexpr double kLearningRate = 1e-3;

struct SmallNetImpl : torch::nn::Module {
  SmallNetImpl() {
    register_module("convolution", convolution);
    register_module("norm", norm);
    register_module("head", head);
  }

  torch::Tensor forward(const torch::Tensor& images) {
    const auto features = torch::max_pool2d(torch::relu(norm(convolution(images))), 2);
    return head(torch::max_pool2d(features, 2).flatten(1));
  }

  /// Without a bias, whose gradient in front of a BatchNorm is nothing but rounding.
  torch::nn::Conv2d convolution{torch::nn::Conv2dOptions(1, 8, 3).padding(1).bias(false)};
  torch::nn::BatchNorm2d norm{8};
  torch::nn::Linear head{8 * 7 * 7, 10};
};
TORCH_MODULE(SmallNet);

/// A network with its optimizer on a device, from the same seed on every device.
struct Training {
  explicit Training(torch::Device device) : device(device) {
    torch::manual_seed(1);
    net = SmallNet();
    net->to(device);
    adam = std::make_unique<torch::optim::Adam>(net->parameters(), kLearningRate);
  }

  double step(const torch::Tensor& images, const torch::Tensor& labels) {
    adam->zero_grad();
    const auto loss =
        torch::nn::functional::cross_entropy(net->forward(images.to(device)), labels.to(device));
    loss.backward();
    adam->step();
    return loss.item<double>();
  }

  torch::Device device;
  SmallNet net{nullptr};
  std::unique_ptr<torch::optim::Adam> adam;
};

double largest_difference(const Training& a, const Training& b) {
  double largest = 0;
  const auto left = a.net->parameters(), right = b.net->parameters();
  for (size_t i = 0; i < left.size(); ++i) {
    largest = std::max(largest, (left[i].cpu() - right[i].cpu()).abs().max().item<double>());
  }
  return largest;
}

bool trains_as_the_cpu(torch::Device device) {
  Training on_device(device), on_cpu(torch::kCPU);
  torch::manual_seed(2);
  double largest = 0;
  for (int step = 0; step < kSteps; ++step) {
    const auto images = torch::randn({16, 1, 28, 28});
    const auto labels = torch::randint(10, {16});
    const double loss = on_device.step(images, labels), cpu_loss = on_cpu.step(images, labels);
    largest = std::max(largest, largest_difference(on_device, on_cpu));
    std::printf("step %d: loss %.7f, on the CPU %.7f; parameters differ by up to %.2g\n", step + 1, loss,
                cpu_loss, largest);
  }
  return largest <= kTolerance;
}

/// Sums a tensor whose values depend on the rank, so that a missing or doubled rank shows.
bool sums_over_the_processes(const TorchTpu& tpu, const ClusterResolver& cluster) {
  const auto backend = tpu.collectives(cluster);
  std::vector<at::Tensor> values{torch::full({3}, cluster.rank() + 1.0).to(torch::kFloat).to(tpu.device())};
  backend->allreduce(values)->wait();
  const int size = cluster.world_size();
  const double expected = size * (size + 1) / 2.0, sum = values[0].cpu()[0].item<double>();
  std::printf("%s: the sum of %d processes is %g, expected %g\n", backend->getBackendName().c_str(), size,
              sum, expected);
  return sum == expected;
}

int check(bool requires_tpu) {
  const auto start = std::chrono::steady_clock::now();
  const TPUClusterResolver cluster(process_environment());
  const TorchTpu tpu({.requires_tpu = requires_tpu});
  const std::chrono::duration<double> loading = std::chrono::steady_clock::now() - start;
  std::printf("%s; device %s, loaded in %.1f s\n", cluster.source().c_str(), tpu.device().str().c_str(),
              loading.count());
  const bool trains = trains_as_the_cpu(tpu.device());
  const bool sums = sums_over_the_processes(tpu, cluster);
  std::printf("%s\n", trains && sums ? "all agree" : "THEY DIFFER");
  return trains && sums ? 0 : 6;
}

}  // namespace
}  // namespace lockstep::torch_tpu

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const bool any_plugin = arguments == std::vector<std::string>{"--any-plugin"};
  if (!arguments.empty() && !any_plugin) {
    std::fputs(
        "check_torch_tpu [--any-plugin]\n"
        "  Compares training on torch_tpu's device with the CPU, and sums over the processes.\n"
        "  --any-plugin  take the PJRT plugin of TPU_LIBRARY_PATH, whatever its hardware\n",
        arguments == std::vector<std::string>{"--help"} ? stdout : stderr);
    return arguments == std::vector<std::string>{"--help"} ? 0 : 2;
  }
  int code = 1;
  try {
    code = lockstep::torch_tpu::check(!any_plugin);
  } catch (const lockstep::InvalidArgument& error) {
    std::fprintf(stderr, "check_torch_tpu: %s\n", error.what());
    code = 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "check_torch_tpu: %s\n", error.what());
  }
  // torch_tpu's threads outlive main(), and may use what static destructors end.
  std::fflush(nullptr);
  std::_Exit(code);
}
