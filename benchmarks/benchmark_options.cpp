#include "lockstep/benchmarks/benchmark_options.h"

#include <cxxopts.hpp>
#include <iostream>
#include <stdexcept>

#include "lockstep/benchmarks/flag_values.h"

namespace lockstep::benchmarks {
namespace {

const std::vector<std::string> kDefaultParts = {"bare",   "bare_process", "independent",
                                                "torch",  "torch_tuned",  "tensorflow",
                                                "memory", "start",        "workers"};

cxxopts::Options describe_flags() {
  const BenchmarkOptions defaults;
  const auto number = [](int64_t value) {
    return cxxopts::value<int64_t>()->default_value(std::to_string(value));
  };
  cxxopts::Options flags(
      "speed_benchmark",
      "Measures Lockstep against LibTorch alone and against other libraries, in alternating "
      "pairs, and prints the ratios as Markdown.");
  // clang-format off
  flags.add_options("What is measured")
    ("parts", "any of bare, bare_process, independent, torch, torch_tuned, tensorflow, memory, start, workers, bucket_caps, logical, images, ops, profile (default: all but the last five; with --gpu bare, torch, logical, images, ops, profile)",
      cxxopts::value<std::vector<std::string>>())
    ("replicas", "replicas of Lockstep and of its peers", number(defaults.num_replicas))
    ("global-batch-size", "images in a step, over all replicas", number(defaults.workload.global_batch_size))
    ("image-size", "height and width in pixels", number(defaults.workload.image_size))
    ("gpu", "measure on this GPU, such as gpu:0, which all replicas share, instead of the CPU", cxxopts::value<std::string>()->default_value(""))
    ("bfloat16", "compute forward and loss in bfloat16 by autocast, instead of float32")
    ("cuda-graph", "with --gpu: Lockstep captures its steps as CUDA graphs, its peers do not")
    ("images", "a folder or zip with a folder of images a class, for the parts images and profile", cxxopts::value<std::string>()->default_value(""))
    ("dense-head", "train the head of average pooling and two dense layers, where no peer decides it")
    ("bucket-mebibytes", "bucket caps that bucket_caps compares (default: 1,2,4,8,25)", cxxopts::value<std::vector<int>>());
  flags.add_options("How long")
    ("pairs", "alternating pairs of a ratio; at least 6", number(defaults.num_pairs))
    ("steps", "training steps of one measurement", number(defaults.steps))
    ("warm-up-steps", "steps of each program before the first measurement", number(defaults.warm_up_steps))
    ("starts", "how often each program is started", number(defaults.num_starts));
  flags.add_options("Peers")
    ("peer-torch-python", "a Python with torch and torchvision; without it, nothing is compared with PyTorch",
      cxxopts::value<std::string>()->default_value(""))
    ("peer-tf-python", "a Python with tensorflow; without it, nothing is compared with TensorFlow",
      cxxopts::value<std::string>()->default_value(""))
    ("peers", "the folder of the peers' programs", cxxopts::value<std::string>()->default_value(defaults.peers));
  flags.add_options("Other")
    ("json", "write the results to this file as JSON, too", cxxopts::value<std::string>()->default_value(""))
    ("serve", "be the job bare, mirrored, independent, workers or worker for another speed_benchmark", cxxopts::value<std::string>()->default_value(""))
    ("help", "print this");
  // clang-format on
  return flags;
}

std::set<std::string> parse_parts(const std::vector<std::string>& given) {
  std::set<std::string> known(kDefaultParts.begin(), kDefaultParts.end());
  known.insert({"bucket_caps", "logical", "images", "ops", "profile"});
  for (const auto& part : given) {
    if (!known.contains(part))
      throw std::invalid_argument("--parts: expected names that --help lists, but got '" + part + "'");
  }
  return {given.begin(), given.end()};
}

std::set<std::string> default_parts(const BenchmarkOptions& options) {
  if (options.workload.gpu.empty()) return {kDefaultParts.begin(), kDefaultParts.end()};
  return {"bare", "torch", "logical", "images", "ops", "profile"};
}

void check_parts(const BenchmarkOptions& options) {
  if (options.parts.contains("images") && options.images.empty())
    throw std::invalid_argument("--parts images: expected --images beside it");
  if (options.workload.gpu.empty()) return;
  for (const char* part : {"independent", "torch_tuned", "tensorflow", "memory", "workers", "bucket_caps"}) {
    if (options.parts.contains(part)) {
      throw std::invalid_argument("--parts " + std::string(part) +
                                  ": expected it on the CPU only, but got --gpu " + options.workload.gpu);
    }
  }
}

}  // namespace

std::optional<BenchmarkOptions> parse_options(int argc, char** argv) {
  auto description = describe_flags();
  const auto flags = description.parse(argc, argv);
  if (flags.count("help") > 0) {
    std::cout << description.help({"What is measured", "How long", "Peers", "Other"});
    return std::nullopt;
  }
  BenchmarkOptions options;
  options.workload.gpu = flags["gpu"].as<std::string>();
  options.workload.bfloat16 = flags.count("bfloat16") > 0;
  options.workload.cuda_graph = flags.count("cuda-graph") > 0;
  if (options.workload.cuda_graph && options.workload.gpu.empty())
    throw std::invalid_argument("--cuda-graph: expected --gpu beside it, since only GPUs have graphs");
  options.images = flags["images"].as<std::string>();
  if (flags.count("parts") > 0) {
    options.parts = parse_parts(flags["parts"].as<std::vector<std::string>>());
    check_parts(options);
  } else {
    options.parts = default_parts(options);
  }
  options.num_pairs = static_cast<int>(at_least(flags, "pairs", 6));
  options.steps = static_cast<int>(at_least(flags, "steps", 1));
  options.warm_up_steps = static_cast<int>(at_least(flags, "warm-up-steps", 1));
  options.num_starts = static_cast<int>(at_least(flags, "starts", 1));
  options.num_replicas = static_cast<int>(at_least(flags, "replicas", 1));
  options.workload.global_batch_size = at_least(flags, "global-batch-size", 1);
  options.workload.image_size = at_least(flags, "image-size", 33);
  options.workload.dense_head = flags.count("dense-head") > 0;
  options.torch_python = flags["peer-torch-python"].as<std::string>();
  options.tensorflow_python = flags["peer-tf-python"].as<std::string>();
  options.peers = flags["peers"].as<std::string>();
  if (flags.count("bucket-mebibytes") > 0)
    options.bucket_mebibytes = flags["bucket-mebibytes"].as<std::vector<int>>();
  options.json = flags["json"].as<std::string>();
  options.serve = flags["serve"].as<std::string>();
  if (options.workload.global_batch_size % options.num_replicas != 0) {
    throw std::invalid_argument("--global-batch-size: expected a multiple of --replicas (" +
                                std::to_string(options.num_replicas) + "), but got " +
                                std::to_string(options.workload.global_batch_size));
  }
  return options;
}

}  // namespace lockstep::benchmarks
