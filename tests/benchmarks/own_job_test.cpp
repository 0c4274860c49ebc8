#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/benchmarks/remote_training.h"

namespace lockstep::benchmarks {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// Parameters of torchvision's mobilenet_v2 with num_classes=10.
constexpr int64_t kNumParameters = 2236682;
// The parameters themselves, their gradients and Adam's two moments, in float32.
constexpr int64_t kBytesOfATraining = kNumParameters * 4 * 4;

/// speed_benchmark as a job, with as little work as its model takes.
class OwnJob : public testing::Test {
 protected:
  void SetUp() override {
    if (program_.empty()) GTEST_SKIP() << "this build has no speed_benchmark (a sanitizer, or no jemalloc)";
  }

  Command command(const std::string& name, int num_replicas) const {
    return {{program_, "--serve", name, "--replicas", std::to_string(num_replicas), "--global-batch-size",
             "8", "--image-size", "33"},
            {}};
  }
  RemoteTraining start(const std::string& name, int num_replicas) const {
    return RemoteTraining(command(name, num_replicas));
  }

 private:
  const std::string program_ = LOCKSTEP_SPEED_BENCHMARK;
};

TEST_F(OwnJob, TrainsTheSameModelWhateverItsName) {
  for (const char* name : {"bare", "mirrored", "independent"}) {
    RemoteTraining job = start(name, 2);
    EXPECT_EQ(job.num_parameters(), kNumParameters) << name;
    EXPECT_GT(job.seconds_for(1), 0) << name;
  }
}

TEST_F(OwnJob, TrainsAGptOfTheSizeOfItsPeers) {
  for (const char* name : {"bare", "mirrored", "independent"}) {
    Command job = command(name, 2);
    job.arguments.insert(job.arguments.end(), {"--model", "gpt", "--sequence-length", "16"});
    RemoteTraining training(job);
    // Embeddings of 256 tokens and 16 positions, 6 blocks, the last norm and the head.
    EXPECT_EQ(training.num_parameters(),
              (256 + 16) * 384 + 6 * (12 * 384 * 384 + 13 * 384) + 2 * 384 + 256 * 384)
        << name;
    EXPECT_GT(training.seconds_for(1), 0) << name;
  }
}

TEST_F(OwnJob, CountsWholeParametersOfAShardedGpt) {
  for (const char* name : {"mirrored", "workers"}) {
    for (const int stage : {1, 3}) {
      Command job = command(name, 2);
      job.arguments.insert(job.arguments.end(), {"--model", "gpt", "--sequence-length", "16", "--sharding",
                                                 std::to_string(stage)});
      RemoteTraining training(job);
      EXPECT_EQ(training.num_parameters(),
                (256 + 16) * 384 + 6 * (12 * 384 * 384 + 13 * 384) + 2 * 384 + 256 * 384)
          << name << ", stage " << stage;
      EXPECT_GT(training.seconds_for(1), 0) << name << ", stage " << stage;
    }
  }
}

// tests/benchmarks/peers/torch_ddp_gloo_test.py has the same losses.
TEST_F(OwnJob, ComputesTheLossesOfPyTorchInAPipeline) {
  for (const char* name : {"mirrored", "workers"}) {
    for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"}) {
      SCOPED_TRACE(std::string(name) + ", " + schedule);
      Command job = command(name, 2);
      job.arguments.insert(job.arguments.end(),
                           {"--model", "gpt", "--sequence-length", "16", "--layers", "4", "--width", "64",
                            "--pipeline", "2", "--schedules", schedule, "--micro-batches", "4"});
      RemoteTraining training(job);
      EXPECT_EQ(training.num_parameters(),
                (256 + 16) * 64 + 4 * (12 * 64 * 64 + 13 * 64) + 2 * 64 + 256 * 64);
      for (const double loss : {5.56997, 5.26022, 5.09439}) {
        EXPECT_NEAR(training.loss(), loss, 1e-4);
        training.seconds_for(1);
      }
    }
  }
}

TEST_F(OwnJob, OfSeveralReplicasHasNoLoss) {
  RemoteTraining training = start("mirrored", 2);
  EXPECT_THAT([&] { training.loss(); },
              ThrowsMessage<std::runtime_error>(HasSubstr("ended before it answered")));
}

TEST_F(OwnJob, HasATrainingForEachReplicaInItsMemory) {
  for (const char* name : {"mirrored", "independent"}) {
    const auto peak = [&](int num_replicas) {
      RemoteTraining job = start(name, num_replicas);
      job.seconds_for(1);
      return job.peak_memory_bytes();
    };
    // The replicas share the batch, so the memory of its activations does not grow.
    EXPECT_GE(peak(4) - peak(1), 3 * kBytesOfATraining * 3 / 4) << name;
  }
}

// Worker 0 and the worker that it started wait for each other to end.
TEST_F(OwnJob, WorkersEndWithTheirInput) {
  ChildProcess job(command("workers", 2));
  EXPECT_THAT(job.read_line(std::chrono::seconds(120)), HasSubstr("ready"));
  job.close_input();
  EXPECT_THAT([&] { job.read_line(std::chrono::seconds(60)); },
              ThrowsMessage<std::runtime_error>(HasSubstr("ended before it answered")));
}

}  // namespace
}  // namespace lockstep::benchmarks
