#include "lockstep/benchmarks/jobs.h"

#include <filesystem>
#include <stdexcept>
#include <thread>

#include "lockstep/benchmarks/allocator.h"

namespace lockstep::benchmarks {
namespace {

void add_flags(Command& job, const Workload& workload, int num_replicas) {
  job.arguments.insert(job.arguments.end(),
                       {"--replicas", std::to_string(num_replicas), "--global-batch-size",
                        std::to_string(workload.global_batch_size)});
  // Programs that know one model have no flag for it.
  if (workload.model == BenchmarkModel::kGpt) {
    job.arguments.insert(
        job.arguments.end(),
        {"--model", workload.model_name(), "--sequence-length", std::to_string(workload.sequence_length),
         "--layers", std::to_string(workload.num_layers), "--width", std::to_string(workload.width)});
  } else {
    job.arguments.insert(job.arguments.end(), {"--image-size", std::to_string(workload.image_size)});
  }
  if (!workload.gpus.empty()) job.arguments.insert(job.arguments.end(), {"--gpus", workload.gpu_list()});
  if (workload.bfloat16) job.arguments.emplace_back("--bfloat16");
}

Command python_job(const std::string& python, const std::string& peers, const char* script) {
  const auto path = std::filesystem::path(peers) / script;
  if (!std::filesystem::exists(path))
    throw std::invalid_argument("--peers: expected a folder with " + std::string(script) + ", but got " +
                                peers);
  // The folder belongs to the project, so no byte code is left in it.
  return {{python, path.string()}, {{"PYTHONDONTWRITEBYTECODE", "1"}}};
}

}  // namespace

Command own_job(const std::string& name, const Workload& workload, int num_replicas) {
  Command job{{std::filesystem::read_symlink("/proc/self/exe").string(), "--serve", name}, {}};
  if (workload.dense_head) job.arguments.emplace_back("--dense-head");
  if (workload.cuda_graph) job.arguments.emplace_back("--cuda-graph");
  add_flags(job, workload, num_replicas);
  return job;
}

Command torch_job(const std::string& python, const std::string& peers, const Workload& workload,
                  int num_replicas) {
  Command job = python_job(python, peers, "torch_ddp.py");
  add_flags(job, workload, num_replicas);
  // torchrun sets this too.
  job.environment.emplace_back("OMP_NUM_THREADS", "1");
  return job;
}

Command with_own_allocator(Command job) {
  job.environment.emplace_back("LD_PRELOAD", allocator_library());
  job.environment.emplace_back("MALLOC_CONF", kAllocatorOptions);
  return job;
}

Command with_sharding(Command job, int stage) {
  job.arguments.insert(job.arguments.end(), {"--sharding", std::to_string(stage)});
  return job;
}

Command with_tensor_axis(Command job, int ranks) {
  job.arguments.insert(job.arguments.end(), {"--tensor", std::to_string(ranks)});
  return job;
}

Command with_pipeline_axis(Command job, const Workload& workload, int ranks) {
  job.arguments.insert(job.arguments.end(),
                       {"--pipeline", std::to_string(ranks), "--schedules", workload.schedule,
                        "--micro-batches", std::to_string(workload.micro_batches)});
  return job;
}

std::string torch_schedule(const Workload& workload) {
  return workload.schedule.starts_with("zb-") ? "1f1b" : workload.schedule;
}

Command with_torch_pipeline(Command job, const Workload& workload) {
  job.arguments.insert(job.arguments.end(), {"--pipeline", torch_schedule(workload), "--micro-batches",
                                             std::to_string(workload.micro_batches)});
  return job;
}

Command with_torch_tensor(Command job) {
  job.arguments.emplace_back("--tensor");
  return job;
}

Command with_torch_sharding(Command job, const std::string& way) {
  job.arguments.insert(job.arguments.end(), {"--sharding", way});
  return job;
}

Command with_compiled_model(Command job) {
  job.arguments.emplace_back("--compile");
  return job;
}

Command in_one_process(Command job) {
  job.arguments.insert(job.arguments.end(), {"--replicas", "1"});
  job.environment.emplace_back("OMP_NUM_THREADS", std::to_string(std::thread::hardware_concurrency()));
  return job;
}

Command tensorflow_job(const std::string& python, const std::string& peers, const Workload& workload,
                       int num_replicas) {
  Command job = python_job(python, peers, "tensorflow_mirrored.py");
  add_flags(job, workload, num_replicas);
  return job;
}

}  // namespace lockstep::benchmarks
