#include "lockstep/benchmarks/benchmark_options.h"

#include <algorithm>
#include <array>
#include <cxxopts.hpp>
#include <iostream>
#include <stdexcept>
#include <utility>

#include "lockstep/benchmarks/flag_values.h"

namespace lockstep::benchmarks {
namespace {

// Places where a part can be measured.
constexpr unsigned kOnCpu = 1;
constexpr unsigned kOnOneGpu = 2;
constexpr unsigned kOnSeveralGpus = 4;
constexpr unsigned kEverywhere = kOnCpu | kOnOneGpu | kOnSeveralGpus;

// Activations of a sequence take far more memory than those of an image.
constexpr int64_t kGptBatchSize = 8;

struct KnownPart {
  const char* name;
  unsigned where;
  unsigned by_default;  ///< places where it is measured if --parts is not given
  std::optional<BenchmarkModel> model = std::nullopt;  ///< The only one that it measures; none: each.

  bool takes(BenchmarkModel given) const { return model.value_or(given) == given; }
};

constexpr std::array kKnownParts{
    KnownPart{"bare", kOnCpu | kOnOneGpu, kOnCpu | kOnOneGpu},
    KnownPart{"bare_process", kOnCpu | kOnOneGpu, kOnCpu},
    KnownPart{"independent", kOnCpu, kOnCpu},
    KnownPart{"torch", kEverywhere, kEverywhere},
    KnownPart{"torch_tuned", kOnCpu, kOnCpu},
    KnownPart{"torch_compiled", kEverywhere, 0},
    KnownPart{"torch_compiled_process", kOnCpu, 0},
    KnownPart{"tensorflow", kOnCpu, kOnCpu, BenchmarkModel::kMobileNetV2},
    KnownPart{"memory", kOnCpu, kOnCpu},
    KnownPart{"sharding", kEverywhere, 0},
    KnownPart{"tensor", kOnCpu | kOnSeveralGpus, 0, BenchmarkModel::kGpt},
    KnownPart{"pipeline", kOnCpu, 0, BenchmarkModel::kGpt},
    KnownPart{"recompute", kOnCpu | kOnOneGpu, 0, BenchmarkModel::kGpt},
    KnownPart{"start", kEverywhere, kOnCpu},
    // Each worker has a GPU of its own: NCCL does not connect processes that share one.
    KnownPart{"workers", kOnCpu | kOnSeveralGpus, kOnCpu | kOnSeveralGpus},
    KnownPart{"bucket_caps", kOnCpu, 0},
    KnownPart{"logical", kOnCpu | kOnOneGpu, kOnOneGpu},
    KnownPart{"images", kOnCpu | kOnOneGpu, kOnOneGpu, BenchmarkModel::kMobileNetV2},
    KnownPart{"ops", kEverywhere, kOnOneGpu | kOnSeveralGpus},
    KnownPart{"profile", kOnCpu | kOnOneGpu, kOnOneGpu},
};

constexpr std::array<const char*, 5> kSchedules{"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"};

unsigned place_of(const Workload& workload) {
  if (workload.gpus.empty()) return kOnCpu;
  return workload.gpus.size() == 1 ? kOnOneGpu : kOnSeveralGpus;
}

std::string names_of_places(unsigned places) {
  std::string names;
  for (const auto& [place, name] : {std::pair(kOnCpu, "the CPU"), std::pair(kOnOneGpu, "one GPU"),
                                    std::pair(kOnSeveralGpus, "several GPUs")}) {
    if ((places & place) != 0) names += (names.empty() ? "" : " or ") + std::string(name);
  }
  return names;
}

std::set<std::string> default_parts(unsigned place, BenchmarkModel model = BenchmarkModel::kMobileNetV2) {
  std::set<std::string> parts;
  for (const auto& part : kKnownParts) {
    if ((part.by_default & place) == 0 || !part.takes(model)) continue;
    parts.insert(part.name);
  }
  return parts;
}

std::string help_on_parts() {
  std::string names;
  for (const auto& part : kKnownParts) names += (names.empty() ? "any of " : ", ") + std::string(part.name);
  for (const unsigned place : {kOnCpu, kOnOneGpu, kOnSeveralGpus}) {
    names += place == kOnCpu ? " (default on " : "; on ";
    names += names_of_places(place) + ":";
    for (const auto& part : default_parts(place)) names += " " + part;
  }
  return names + ")";
}

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
    ("parts", help_on_parts(),
      cxxopts::value<std::vector<std::string>>())
    ("replicas", "replicas of Lockstep and of its peers; with several --gpus one on each", number(defaults.num_replicas))
    ("model", "mobilenet_v2, on images, or gpt, on tokens", cxxopts::value<std::string>()->default_value(defaults.workload.model_name()))
    ("global-batch-size", "images or sequences in a step, over all replicas (default: 64, or 8 of gpt)", cxxopts::value<int64_t>())
    ("sequence-length", "tokens in a sequence", number(defaults.workload.sequence_length))
    ("layers", "layers of the GPT", number(defaults.workload.num_layers))
    ("width", "width of the GPT's layers, a multiple of 64, the width of a head", number(defaults.workload.width))
    ("image-size", "height and width in pixels", number(defaults.workload.image_size))
    ("gpus", "measure on GPUs instead of the CPU: on one, such as gpu:0, which all replicas share, or on several, such as gpu:0,gpu:1, with one replica on each", cxxopts::value<std::vector<std::string>>())
    ("bfloat16", "compute forward and loss in bfloat16 by autocast, instead of float32")
    ("cuda-graph", "with --gpus: Lockstep captures its steps as CUDA graphs, its peers do not")
    ("images", "a folder or zip with a folder of images a class, for the parts images and profile", cxxopts::value<std::string>()->default_value(""))
    ("dense-head", "train the head of average pooling and two dense layers, where no peer decides it")
    ("schedules", "schedules of pipelines that pipeline compares: gpipe, 1f1b, interleaved, zb-h1 or zb-v (default: 1f1b,zb-h1)", cxxopts::value<std::vector<std::string>>())
    ("micro-batches", "parts of a batch in a pipeline", number(defaults.workload.micro_batches))
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
    ("sharding", "the stage of sharding, 0 to 3, of a job mirrored, workers or worker", number(defaults.sharding))
    ("tensor", "the ranks that a GPT is cut among, of a job mirrored, workers or worker", number(defaults.tensor))
    ("pipeline", "the ranks that a GPT's layers are divided among, of a job mirrored, workers or worker", number(defaults.pipeline))
    ("help", "print this");
  // clang-format on
  return flags;
}

bool is_gpu(const std::string& name) {
  const std::string kind = "gpu:";
  return name.starts_with(kind) && name.size() > kind.size() &&
         name.find_first_not_of("0123456789", kind.size()) == std::string::npos;
}

std::vector<std::string> parse_gpus(const cxxopts::ParseResult& flags) {
  if (flags.count("gpus") == 0) return {};
  auto gpus = flags["gpus"].as<std::vector<std::string>>();
  std::set<std::string> seen;
  for (const auto& gpu : gpus) {
    if (!is_gpu(gpu))
      throw std::invalid_argument("--gpus: expected GPUs such as gpu:0,gpu:1, but got '" + gpu + "'");
    if (!seen.insert(gpu).second)
      throw std::invalid_argument("--gpus: expected each GPU once, but got " + gpu + " twice");
  }
  return gpus;
}

BenchmarkModel parse_model(const cxxopts::ParseResult& flags) {
  const auto name = flags["model"].as<std::string>();
  if (name == "gpt") return BenchmarkModel::kGpt;
  if (name == "mobilenet_v2") return BenchmarkModel::kMobileNetV2;
  throw std::invalid_argument("--model: expected mobilenet_v2 or gpt, but got '" + name + "'");
}

int parse_replicas(const cxxopts::ParseResult& flags, const Workload& workload) {
  const auto replicas = static_cast<int>(at_least(flags, "replicas", 1));
  const auto num_gpus = static_cast<int>(workload.gpus.size());
  if (num_gpus < 2 || replicas == num_gpus) return replicas;
  if (flags.count("replicas") == 0) return num_gpus;
  throw std::invalid_argument("--replicas: expected " + std::to_string(num_gpus) +
                              ", one on each of --gpus " + workload.gpu_list() + ", but got " +
                              std::to_string(replicas));
}

std::set<std::string> parse_parts(const cxxopts::ParseResult& flags, const Workload& workload) {
  const unsigned place = place_of(workload);
  if (flags.count("parts") == 0) return default_parts(place, workload.model);
  const auto given = flags["parts"].as<std::vector<std::string>>();
  for (const auto& name : given) {
    const auto* part = std::find_if(kKnownParts.begin(), kKnownParts.end(),
                                    [&](const KnownPart& known) { return name == known.name; });
    if (part == kKnownParts.end())
      throw std::invalid_argument("--parts: expected names that --help lists, but got '" + name + "'");
    if ((part->where & place) == 0) {
      throw std::invalid_argument("--parts " + name + ": expected it on " + names_of_places(part->where) +
                                  ", but got " +
                                  (place == kOnCpu ? "no --gpus" : "--gpus " + workload.gpu_list()));
    }
    if (!part->takes(workload.model)) {
      throw std::invalid_argument("--parts " + name + ": expected --model " +
                                  Workload{.model = *part->model}.model_name() + " with it, but got " +
                                  workload.model_name());
    }
    if (name == "images" && flags["images"].as<std::string>().empty())
      throw std::invalid_argument("--parts images: expected --images with it");
  }
  return {given.begin(), given.end()};
}

void check_pipeline_job(const BenchmarkOptions& options) {
  const auto refuse = [](const std::string& text) { throw std::invalid_argument(text); };
  if (options.serve.empty()) refuse("--pipeline: expected --serve with it; --parts pipeline compares it");
  if (options.workload.model != BenchmarkModel::kGpt) {
    refuse(std::string("--pipeline: expected --model gpt with it, but got ") + options.workload.model_name());
  }
  if (options.tensor > 1)
    refuse("--pipeline: expected no --tensor with it, but got " + std::to_string(options.tensor));
  if (options.sharding > 0)
    refuse("--pipeline: expected no --sharding with it, but got " + std::to_string(options.sharding));
  if (options.schedules.size() != 1) {
    refuse("--schedules: expected one with --pipeline, but got " + std::to_string(options.schedules.size()));
  }
}

void take_pipelines(const cxxopts::ParseResult& flags, BenchmarkOptions& options) {
  options.workload.micro_batches = static_cast<int>(at_least(flags, "micro-batches", 1));
  if (flags.count("schedules") > 0) options.schedules = flags["schedules"].as<std::vector<std::string>>();
  for (const auto& name : options.schedules) {
    if (std::find(kSchedules.begin(), kSchedules.end(), name) != kSchedules.end()) continue;
    throw std::invalid_argument("--schedules: expected gpipe, 1f1b, interleaved, zb-h1 or zb-v, but got '" +
                                name + "'");
  }
  options.pipeline = static_cast<int>(at_least(flags, "pipeline", 1));
  if (options.pipeline > 1) check_pipeline_job(options);
  options.workload.schedule = options.schedules.front();
  if (!options.parts.contains("pipeline") && options.pipeline == 1) return;
  // PyTorch's pipelines take equal parts only.
  if (options.workload.global_batch_size % options.workload.micro_batches != 0) {
    throw std::invalid_argument("--micro-batches: expected a number that divides --global-batch-size (" +
                                std::to_string(options.workload.global_batch_size) + "), but got " +
                                std::to_string(options.workload.micro_batches));
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
  options.workload.gpus = parse_gpus(flags);
  options.workload.model = parse_model(flags);
  options.workload.bfloat16 = flags.count("bfloat16") > 0;
  options.workload.cuda_graph = flags.count("cuda-graph") > 0;
  if (options.workload.cuda_graph && options.workload.gpus.empty())
    throw std::invalid_argument("--cuda-graph: expected --gpus with it, since only GPUs have graphs");
  options.images = flags["images"].as<std::string>();
  options.parts = parse_parts(flags, options.workload);
  options.num_pairs = static_cast<int>(at_least(flags, "pairs", 6));
  options.steps = static_cast<int>(at_least(flags, "steps", 1));
  options.warm_up_steps = static_cast<int>(at_least(flags, "warm-up-steps", 1));
  options.num_starts = static_cast<int>(at_least(flags, "starts", 1));
  options.num_replicas = parse_replicas(flags, options.workload);
  if (flags.count("global-batch-size") > 0) {
    options.workload.global_batch_size = at_least(flags, "global-batch-size", 1);
  } else if (options.workload.model == BenchmarkModel::kGpt) {
    options.workload.global_batch_size = kGptBatchSize;
  }
  options.workload.sequence_length = at_least(flags, "sequence-length", 2);
  options.workload.num_layers = at_least(flags, "layers", 1);
  options.workload.width = at_least(flags, "width", kHeadWidth);
  if (options.workload.width % kHeadWidth != 0)
    throw std::invalid_argument("--width: expected a multiple of " + std::to_string(kHeadWidth) +
                                ", but got " + std::to_string(options.workload.width));
  options.workload.image_size = at_least(flags, "image-size", 33);
  options.workload.dense_head = flags.count("dense-head") > 0;
  options.torch_python = flags["peer-torch-python"].as<std::string>();
  options.tensorflow_python = flags["peer-tf-python"].as<std::string>();
  options.peers = flags["peers"].as<std::string>();
  if (flags.count("bucket-mebibytes") > 0)
    options.bucket_mebibytes = flags["bucket-mebibytes"].as<std::vector<int>>();
  options.json = flags["json"].as<std::string>();
  options.serve = flags["serve"].as<std::string>();
  options.sharding = static_cast<int>(at_least(flags, "sharding", 0));
  if (options.sharding > 0 && options.serve.empty())
    throw std::invalid_argument("--sharding: expected --serve with it; --parts sharding compares all stages");
  options.tensor = static_cast<int>(at_least(flags, "tensor", 1));
  if (options.tensor > 1 && options.serve.empty())
    throw std::invalid_argument("--tensor: expected --serve with it; --parts tensor compares it");
  take_pipelines(flags, options);
  if (options.workload.global_batch_size % options.num_replicas != 0) {
    throw std::invalid_argument("--global-batch-size: expected a multiple of --replicas (" +
                                std::to_string(options.num_replicas) + "), but got " +
                                std::to_string(options.workload.global_batch_size));
  }
  return options;
}

}  // namespace lockstep::benchmarks
