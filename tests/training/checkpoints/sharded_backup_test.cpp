#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/checkpoint_files.h"
#include "lockstep/tests/support/file_size_limit.h"
#include "lockstep/tests/support/loop_by_hand.h"
#include "lockstep/tests/support/temporary_folder.h"
#include "lockstep/tests/support/text_files.h"
#include "lockstep/tests/support/worker_strategies.h"
#include "lockstep/training/checkpoints/checkpoint_manifest.h"
#include "lockstep/training/checkpoints/checkpoint_state.h"
#include "lockstep/training/checkpoints/checkpoint_store.h"
#include "lockstep/training/checkpoints/weights_file.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

using Layout = std::vector<int>;
using testing::TemporaryFolder;

BackupOptions sharded(const std::string& folder, std::vector<std::string>* messages = nullptr) {
  auto options = every_step(folder, messages);
  options.sharded = true;
  return options;
}

/// Trains the workers of `layout` until `last_step`; returns worker 0's parameters.
std::vector<torch::Tensor> train(const Layout& layout, const BackupOptions& options, int64_t last_step) {
  std::vector<torch::Tensor> parameters;
  expect_no_worker_failed(run_strategies(layout, [&](MultiWorkerMirroredStrategy& strategy) {
    LoopByHand loop(strategy, options);
    const auto trained = loop.run_to(last_step);
    loop.backup.finish();
    if (strategy.cluster_resolver()->rank() == 0) parameters = trained;
  }));
  return parameters;
}

std::string checkpoint_of(const BackupOptions& options, int step) {
  return options.folder + "/checkpoint-00000000000" + std::to_string(step);
}

TEST(ShardedBackupTest, GoesOnBitByBit) {
  for (const Layout& layout : {Layout{1, 1}, Layout{2, 1}, Layout{1, 1, 1}}) {
    const TemporaryFolder folder;
    const auto whole = train(layout, sharded(folder.file("whole")), 6);
    for (const int step : {1, 3, 5}) {
      const auto options = sharded(folder.file("part" + std::to_string(step)));
      train(layout, options, step);
      EXPECT_THAT(list_checkpoints(options.folder), Contains(checkpoint_of(options, step)));
      EXPECT_TRUE(bit_equal(train(layout, options, 6), whole)) << layout.size() << ", " << step;
    }
  }
}

TEST(ShardedBackupTest, EachWorkerWritesItsPart) {
  const TemporaryFolder folder;
  const auto options = sharded(folder.file("backup"));
  train({1, 1, 1}, options, 1);
  const std::string checkpoint = checkpoint_of(options, 1);
  EXPECT_THAT(testing::names_in(checkpoint),
              ElementsAre("manifest.json", "manifest.sha256", "state-1.pt", "state-2.pt", "state.pt"));
  std::map<std::string, int> files_of_tensor;
  const auto manifest = read_manifest(checkpoint);
  ASSERT_THAT(manifest.files, SizeIs(3));
  for (const auto& file : manifest.files)
    for (const auto& part : file.parts)
      if (part.name.starts_with("model.") || part.name.starts_with("optimizers."))
        ++files_of_tensor[part.name];
  // Two layers with weight and bias, and their momentum; each file has some.
  EXPECT_THAT(files_of_tensor, SizeIs(8));
  for (const auto& file : manifest.files)
    EXPECT_TRUE(std::any_of(file.parts.begin(), file.parts.end(), [](const auto& part) {
      return part.name.starts_with("model.") || part.name.starts_with("optimizers.");
    })) << file.name;
  for (const auto& [name, count] : files_of_tensor) EXPECT_EQ(count, 1) << name;
}

/// Compares regardless of the order of keys.
void expect_same(const StateValue& actual, const StateValue& expected, const std::string& path) {
  ASSERT_EQ(actual.data().index(), expected.data().index()) << path;
  if (const auto* dict = expected.get_if<StateValue::Dict>()) {
    const auto& other = *actual.get_if<StateValue::Dict>();
    EXPECT_EQ(other.entries.size(), dict->entries.size()) << path;
    for (const auto& [key, value] : dict->entries) {
      const std::string name =
          path + "." +
          (key.index() == 0 ? std::get<std::string>(key) : std::to_string(std::get<int64_t>(key)));
      ASSERT_NE(other.find(key), nullptr) << name;
      expect_same(*other.find(key), value, name);
    }
  } else if (const auto* list = expected.get_if<StateValue::List>()) {
    const auto& other = *actual.get_if<StateValue::List>();
    ASSERT_EQ(other.size(), list->size()) << path;
    for (size_t i = 0; i < list->size(); ++i)
      expect_same(other[i], (*list)[i], path + "." + std::to_string(i));
  } else if (const auto* tensor = expected.get_if<torch::Tensor>()) {
    EXPECT_TRUE(torch::equal(*actual.get_if<torch::Tensor>(), *tensor)) << path;
  } else if (const auto* integer = expected.get_if<int64_t>()) {
    EXPECT_EQ(*actual.get_if<int64_t>(), *integer) << path;
  } else if (const auto* number = expected.get_if<double>()) {
    EXPECT_EQ(*actual.get_if<double>(), *number) << path;
  } else if (const auto* text = expected.get_if<std::string>()) {
    EXPECT_EQ(*actual.get_if<std::string>(), *text) << path;
  }
}

TEST(ShardedBackupTest, HoldsWhatWorkerZeroWritesAlone) {
  const TemporaryFolder folder;
  const auto together = sharded(folder.file("together"));
  const auto alone = every_step(folder.file("alone"));
  train({1, 1}, together, 2);
  train({1, 1}, alone, 2);
  expect_same(load_checkpoint(checkpoint_of(together, 2)), load_checkpoint(checkpoint_of(alone, 2)), "state");
  EXPECT_THAT(load_weights(checkpoint_of(together, 2)), SizeIs(4));
}

TEST(ShardedBackupTest, APartAloneIsNoTrainingState) {
  const TemporaryFolder folder;
  const auto together = sharded(folder.file("together"));
  train({1, 1}, together, 2);
  const std::string part = checkpoint_of(together, 2) + "/state.pt";
  const auto expected =
      AllOf(HasSubstr(part), HasSubstr("part 0 of 2"), HasSubstr("load the checkpoint's folder"));
  EXPECT_THAT(error_of<CheckpointError>([&] { load_weights(part); }), expected);
  MirroredStrategy strategy(cpu_devices(1));
  LoopByHand loop(strategy, every_step(folder.file("other")));
  EXPECT_THAT(error_of<CheckpointError>([&] { loop.backup.state().load(part); }), expected);

  auto files = read_checkpoint(checkpoint_of(together, 2));
  std::swap(files[0].bytes, files[1].bytes);
  EXPECT_THAT(error_of<CheckpointError>([&] { parse_checkpoint(files); }),
              HasSubstr("expected part 0 of 2, but got part 1 of 2"));
  files.resize(1);
  EXPECT_THAT(error_of<CheckpointError>([&] { parse_checkpoint(files); }),
              HasSubstr("expected part 0 of 1, but got part 1 of 2"));
}

TEST(ShardedBackupTest, WorkersThatDoNotAllShareAreNamed) {
  const TemporaryFolder folder;
  const auto errors = run_strategies({1, 1, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
    const bool shares = strategy.cluster_resolver()->rank() != 2;
    LoopByHand(strategy, shares ? sharded(folder.file("backup")) : every_step(folder.file("backup")));
  });
  for (const auto& error : errors) {
    EXPECT_TRUE(is_a<InvalidArgument>(error));
    EXPECT_THAT(text_of(error), AllOf(HasSubstr("worker 0 has checkpoints written together"),
                                      HasSubstr("worker 2 by worker 0 alone")));
  }
}

/// A file as the parent, where nobody, not even root, can make a folder.
TEST(ShardedBackupTest, AWorkerThatCannotWriteThereIsNamedAsItBegins) {
  const TemporaryFolder folder;
  const auto errors = run_strategies({1, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
    const bool is_first = strategy.cluster_resolver()->rank() == 0;
    LoopByHand(strategy, sharded(is_first ? folder.file("backup") : folder.write("file", "no folder")));
  });
  for (const auto& error : errors) {
    EXPECT_TRUE(is_a<std::system_error>(error));
    EXPECT_THAT(text_of(error), AllOf(HasSubstr("worker 1: cannot write in '" + folder.file("file") + "'"),
                                      HasSubstr("Not a directory")));
  }
}

TEST(ShardedBackupTest, AFolderThatIsInUseIsToldToAllWorkers) {
  const TemporaryFolder folder;
  const CheckpointStore owner({.folder = folder.file("backup")});
  for (const bool shares : {false, true}) {
    const auto options = shares ? sharded(folder.file("backup")) : every_step(folder.file("backup"));
    const auto errors =
        run_strategies({1, 1}, [&](MultiWorkerMirroredStrategy& strategy) { LoopByHand(strategy, options); });
    for (const auto& error : errors) {
      EXPECT_TRUE(is_a<CheckpointError>(error));
      EXPECT_THAT(text_of(error), HasSubstr("is in use by process "));
    }
  }
}

/// Each worker cuts shards from its own state.
TEST(ShardedBackupTest, AWorkerWithOtherTensorsIsNamed) {
  const TemporaryFolder folder;
  const auto errors = run_strategies({1, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
    LoopByHand loop(strategy, sharded(folder.file("backup")));
    if (strategy.cluster_resolver()->rank() == 1) {
      // Worker 1 takes a step alone, which gives it momentum.
      for (auto& parameter : (*loop.model).primary()->parameters())
        parameter.mutable_grad() = torch::ones_like(parameter);
      (*loop.optimizer).primary()->step();
    }
    loop.backup.save_and_wait(loop.progress);
  });
  for (const auto& error : errors) {
    EXPECT_TRUE(is_a<InvalidArgument>(error));
    EXPECT_THAT(text_of(error), HasSubstr("worker 1 has others than worker 0"));
  }
  EXPECT_TRUE(list_checkpoints(folder.file("backup")).empty());
}

TEST(ShardedBackupTest, AStartThatCameBackLateWritesNothing) {
  const TemporaryFolder folder;
  const auto options = sharded(folder.file("backup"));
  const auto errors = run_strategies({1, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
    LoopByHand loop(strategy, options);
    loop.run_to(2);
    loop.backup.finish();
    if (strategy.cluster_resolver()->rank() == 0) std::filesystem::remove(options.folder + "/lock");
    loop.run_to(4);
  });
  EXPECT_TRUE(is_a<CheckpointError>(errors[0]));
  for (const auto& error : errors)
    EXPECT_THAT(text_of(error), HasSubstr("a later start of this job has taken it"));
  EXPECT_THAT(list_checkpoints(options.folder),
              ElementsAre(checkpoint_of(options, 2), checkpoint_of(options, 1)));
}

TEST(ShardedBackupTest, AnyNumberOfWorkersReadsIt) {
  const TemporaryFolder folder;
  const auto together = sharded(folder.file("together"));
  const auto alone = every_step(folder.file("alone"));
  train({1, 1, 1}, together, 3);
  train({1, 1, 1}, alone, 3);
  for (const Layout& layout : {Layout{1, 1}, Layout{2, 2}, Layout{1, 1, 1, 1}}) {
    for (const bool writes_together : {false, true}) {
      const auto resume = [&](const BackupOptions& from) {
        const TemporaryFolder next;
        auto options = writes_together ? sharded(next.file("backup")) : every_step(next.file("backup"));
        options.resume = from.folder;
        return train(layout, options, 6);
      };
      EXPECT_TRUE(bit_equal(resume(together), resume(alone))) << layout.size();
    }
  }
  auto options = every_step(folder.file("one"));
  options.resume = together.folder;
  MirroredStrategy strategy(cpu_devices(1));
  EXPECT_EQ(LoopByHand(strategy, options).progress.step, 3);
}

TEST(ShardedBackupTest, OneProcessWritesAllOfIt) {
  const TemporaryFolder folder;
  MirroredStrategy strategy(cpu_devices(2));
  const auto options = sharded(folder.file("backup"));
  { LoopByHand(strategy, options).run_to(1); }
  EXPECT_THAT(testing::names_in(checkpoint_of(options, 1)),
              ElementsAre("manifest.json", "manifest.sha256", "state.pt"));
}

TEST(ShardedBackupTest, ADamagedPartIsNamedAndTheCheckpointBeforeTaken) {
  const TemporaryFolder folder;
  std::vector<std::string> messages;
  const auto options = sharded(folder.file("backup"), &messages);
  const auto whole = train({1, 1}, options, 4);
  damage(checkpoint_of(options, 4) + "/state-1.pt");
  EXPECT_TRUE(bit_equal(train({1, 1}, options, 4), whole));
  EXPECT_THAT(messages,
              Contains(AllOf(HasSubstr("passed over a damaged checkpoint"), HasSubstr("000004/state-1.pt"))));
  EXPECT_THAT(messages, Contains(HasSubstr("resumes after step 3 from ")));
  std::filesystem::remove(checkpoint_of(options, 4) + "/state-1.pt");
  train({1, 1}, options, 4);
  EXPECT_THAT(messages, Contains(AllOf(HasSubstr("damaged"), HasSubstr("state-1.pt"), HasSubstr("cannot"))));
}

TEST(ShardedBackupTest, AFullDiskIsAMessageAndTheTrainingGoesOn) {
  for (const bool asynchronous : {false, true}) {
    const TemporaryFolder folder;
    std::vector<std::string> messages;
    auto options = sharded(folder.file("backup"), &messages);
    options.asynchronous = asynchronous;
    train({1, 1}, options, 1);
    messages.clear();
    {
      const testing::FileSizeLimit limit(1000);
      expect_no_worker_failed(run_strategies({1, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
        LoopByHand loop(strategy, options);
        loop.run_to(4);
        loop.backup.finish();
        // All workers know that the save failed.
        EXPECT_THAT(error_of<std::system_error>([&] { loop.backup.save_and_wait(loop.progress); }),
                    AllOf(HasSubstr(strategy.cluster_resolver()->rank() == 0 ? "cannot write"
                                                                             : "worker 0: cannot write"),
                          HasSubstr("state.pt")));
      }));
    }
    EXPECT_THAT(messages, Contains(AllOf(HasSubstr("could not be saved, training continues: cannot write"),
                                         HasSubstr("state.pt"), HasSubstr("File too large"))));
    EXPECT_THAT(testing::names_in(options.folder), ElementsAre("checkpoint-000000000001"));
    train({1, 1}, options, 5);
    EXPECT_THAT(list_checkpoints(options.folder), Contains(checkpoint_of(options, 5)));
  }
}

TEST(ShardedBackupTest, WorkersWithoutACommonFolderAreNamed) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.file("other"));
  const auto errors = run_strategies({1, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
    const bool is_first = strategy.cluster_resolver()->rank() == 0;
    LoopByHand(strategy, sharded(folder.file(is_first ? "backup" : "other")));
  });
  for (const auto& error : errors) {
    EXPECT_TRUE(is_a<CheckpointError>(error));
    EXPECT_THAT(text_of(error), AllOf(HasSubstr("all workers share"), HasSubstr("worker 0"),
                                      HasSubstr("worker 1's '" + folder.file("other"))));
  }
  EXPECT_THAT(testing::names_in(folder.file("backup")), ElementsAre());
}

TEST(ShardedBackupTest, WhatIsUnderWayAtAnErrorIsGivenUp) {
  const TemporaryFolder folder;
  const auto options = sharded(folder.file("backup"));
  const auto errors = run_strategies({1, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
    LoopByHand loop(strategy, options);
    loop.run_to(3);
    throw InvalidArgument("an error of the program");
  });
  for (const auto& error : errors) EXPECT_TRUE(is_a<InvalidArgument>(error)) << text_of(error);
  // Each save finishes the one before it; nothing is left of the last one.
  EXPECT_THAT(list_checkpoints(options.folder),
              ElementsAre(checkpoint_of(options, 2), checkpoint_of(options, 1)));
  for (const auto& path : list_checkpoints(options.folder)) EXPECT_NO_THROW(load_checkpoint(path));
  train({1, 1}, options, 4);
  for (const auto& name : testing::names_in(options.folder)) EXPECT_NE(name.front(), '.') << name;
}

}  // namespace
}  // namespace lockstep
