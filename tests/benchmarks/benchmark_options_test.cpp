#include "lockstep/benchmarks/benchmark_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep::benchmarks {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

BenchmarkOptions parse_words(std::vector<std::string> words) {
  words.insert(words.begin(), "speed_benchmark");
  std::vector<char*> pointers;
  for (auto& word : words) pointers.push_back(word.data());
  return parse_options(static_cast<int>(pointers.size()), pointers.data()).value();
}

std::string refusal_of_words(const std::vector<std::string>& words) {
  try {
    parse_words(words);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "not refused";
}

TEST(BenchmarkOptions, MeasureOnTheCpuWithTwoReplicasByDefault) {
  const auto options = parse_words({});
  EXPECT_THAT(options.workload.gpus, ElementsAre());
  EXPECT_EQ(options.num_replicas, 2);
  EXPECT_THAT(options.parts, UnorderedElementsAre("bare", "bare_process", "independent", "torch",
                                                  "torch_tuned", "tensorflow", "memory", "start", "workers"));
}

TEST(BenchmarkOptions, LeaveOutWhatOnlyImagesHaveForAGpt) {
  const auto options = parse_words({"--model", "gpt"});
  EXPECT_EQ(options.workload.model, BenchmarkModel::kGpt);
  EXPECT_EQ(options.workload.global_batch_size, 8);
  EXPECT_THAT(options.parts, UnorderedElementsAre("bare", "bare_process", "independent", "torch",
                                                  "torch_tuned", "memory", "start", "workers"));
  EXPECT_EQ(parse_words({"--model", "gpt", "--global-batch-size", "4"}).workload.global_batch_size, 4);
  EXPECT_EQ(refusal_of_words({"--model", "gpt", "--parts", "tensorflow"}),
            "--parts tensorflow: expected --model mobilenet_v2 with it, but got gpt");
  EXPECT_EQ(refusal_of_words({"--model", "vgg"}), "--model: expected mobilenet_v2 or gpt, but got 'vgg'");
}

TEST(BenchmarkOptions, LetAllReplicasShareOneGpu) {
  const auto options = parse_words({"--gpus", "gpu:1", "--replicas", "4"});
  EXPECT_THAT(options.workload.gpus, ElementsAre("gpu:1"));
  EXPECT_EQ(options.num_replicas, 4);
  EXPECT_THAT(options.parts, UnorderedElementsAre("bare", "torch", "logical", "images", "ops", "profile"));
}

TEST(BenchmarkOptions, PutOneReplicaOnEachOfSeveralGpus) {
  const auto options = parse_words({"--gpus", "gpu:0,gpu:2,gpu:1", "--global-batch-size", "96"});
  EXPECT_THAT(options.workload.gpus, ElementsAre("gpu:0", "gpu:2", "gpu:1"));
  EXPECT_EQ(options.workload.gpu_list(), "gpu:0,gpu:2,gpu:1");
  EXPECT_EQ(options.num_replicas, 3);
  EXPECT_THAT(options.parts, UnorderedElementsAre("torch", "workers", "ops"));
  EXPECT_EQ(parse_words({"--gpus", "gpu:0,gpu:1", "--replicas", "2"}).num_replicas, 2);
  EXPECT_EQ(refusal_of_words({"--gpus", "gpu:0,gpu:1", "--replicas", "3"}),
            "--replicas: expected 2, one on each of --gpus gpu:0,gpu:1, but got 3");
  EXPECT_EQ(refusal_of_words({"--gpus", "gpu:0,gpu:1,gpu:2"}),
            "--global-batch-size: expected a multiple of --replicas (3), but got 64");
}

TEST(BenchmarkOptions, RefuseWhatIsNoGpu) {
  for (const std::string text : {"cpu:0", "gpu", "gpu:", "gpu:x", "0", "gpu:0 "}) {
    EXPECT_EQ(refusal_of_words({"--gpus", "gpu:3," + text}),
              "--gpus: expected GPUs such as gpu:0,gpu:1, but got '" + text + "'");
  }
  EXPECT_EQ(refusal_of_words({"--gpus", "gpu:0,gpu:1,gpu:0"}),
            "--gpus: expected each GPU once, but got gpu:0 twice");
}

TEST(BenchmarkOptions, RefuseAPartWhereItMakesNoSense) {
  for (const std::string part : {"independent", "torch_tuned", "tensorflow", "memory", "bucket_caps"}) {
    EXPECT_EQ(refusal_of_words({"--gpus", "gpu:0", "--parts", part}),
              "--parts " + part + ": expected it on the CPU, but got --gpus gpu:0");
  }
  for (const std::string part : {"bare", "bare_process", "logical", "profile"}) {
    EXPECT_EQ(parse_words({"--gpus", "gpu:0", "--parts", part}).parts.count(part), 1);
    EXPECT_EQ(refusal_of_words({"--gpus", "gpu:0,gpu:1", "--parts", part}),
              "--parts " + part + ": expected it on the CPU or one GPU, but got --gpus gpu:0,gpu:1");
  }
  EXPECT_THAT(refusal_of_words({"--gpus", "gpu:0,gpu:1", "--parts", "images", "--images", "some"}),
              HasSubstr("--parts images: expected it on the CPU or one GPU"));
  EXPECT_EQ(refusal_of_words({"--gpus", "gpu:0", "--parts", "workers"}),
            "--parts workers: expected it on the CPU or several GPUs, but got --gpus gpu:0");
  EXPECT_EQ(refusal_of_words({"--parts", "torch_compiled_process", "--gpus", "gpu:0"}),
            "--parts torch_compiled_process: expected it on the CPU, but got --gpus gpu:0");
  for (const std::string gpus : {"gpu:0", "gpu:0,gpu:1"})
    EXPECT_EQ(parse_words({"--gpus", gpus, "--parts", "torch_compiled"}).parts.count("torch_compiled"), 1);
  EXPECT_EQ(refusal_of_words({"--parts", "recompute"}),
            "--parts recompute: expected --model gpt with it, but got mobilenet_v2");
  EXPECT_EQ(parse_words({"--parts", "recompute", "--model", "gpt"}).parts.count("recompute"), 1);
  EXPECT_EQ(refusal_of_words({"--parts", "bear"}),
            "--parts: expected names that --help lists, but got 'bear'");
  EXPECT_EQ(refusal_of_words({"--parts", "images"}), "--parts images: expected --images with it");
}

TEST(BenchmarkOptions, HaveSchedulesOfPipelines) {
  const auto options = parse_words({"--model", "gpt", "--parts", "pipeline"});
  EXPECT_THAT(options.schedules, ElementsAre("1f1b", "zb-h1"));
  EXPECT_EQ(options.workload.micro_batches, 4);
  const auto job = parse_words({"--serve", "workers", "--model", "gpt", "--pipeline", "2", "--schedules",
                                "zb-v", "--micro-batches", "8"});
  EXPECT_EQ(job.pipeline, 2);
  EXPECT_EQ(job.workload.schedule, "zb-v");
  EXPECT_EQ(job.workload.micro_batches, 8);
  EXPECT_EQ(refusal_of_words({"--parts", "pipeline"}),
            "--parts pipeline: expected --model gpt with it, but got mobilenet_v2");
  EXPECT_EQ(refusal_of_words({"--parts", "pipeline", "--model", "gpt", "--gpus", "gpu:0,gpu:1"}),
            "--parts pipeline: expected it on the CPU, but got --gpus gpu:0,gpu:1");
  EXPECT_EQ(refusal_of_words({"--pipeline", "2"}),
            "--pipeline: expected --serve with it; --parts pipeline compares it");
  EXPECT_EQ(refusal_of_words({"--pipeline", "2", "--serve", "mirrored"}),
            "--pipeline: expected --model gpt with it, but got mobilenet_v2");
  EXPECT_EQ(refusal_of_words({"--pipeline", "2", "--serve", "mirrored", "--model", "gpt", "--tensor", "2"}),
            "--pipeline: expected no --tensor with it, but got 2");
  EXPECT_EQ(refusal_of_words({"--pipeline", "2", "--serve", "mirrored", "--model", "gpt"}),
            "--schedules: expected one with --pipeline, but got 2");
  EXPECT_EQ(refusal_of_words({"--schedules", "gpipe,2f1b"}),
            "--schedules: expected gpipe, 1f1b, interleaved, zb-h1 or zb-v, but got '2f1b'");
  EXPECT_EQ(refusal_of_words({"--model", "gpt", "--parts", "pipeline", "--micro-batches", "3"}),
            "--micro-batches: expected a number that divides --global-batch-size (8), but got 3");
  EXPECT_EQ(refusal_of_words({"--micro-batches", "0"}), "--micro-batches: expected at least 1, but got 0");
}

TEST(BenchmarkOptions, HaveGraphsOnGpusOnly) {
  EXPECT_TRUE(parse_words({"--gpus", "gpu:0", "--cuda-graph"}).workload.cuda_graph);
  EXPECT_EQ(refusal_of_words({"--cuda-graph"}),
            "--cuda-graph: expected --gpus with it, since only GPUs have graphs");
}

}  // namespace
}  // namespace lockstep::benchmarks
