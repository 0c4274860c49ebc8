#include "lockstep/training/checkpoints/checkpoint_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <system_error>
#include <thread>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/runtime/base/files/internal/sha256.h"
#include "lockstep/runtime/base/files/part_sink.h"
#include "lockstep/tests/support/file_size_limit.h"
#include "lockstep/tests/support/other_process.h"
#include "lockstep/tests/support/test_files.h"
#include "lockstep/tests/support/text_files.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::FileSizeLimit;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::names_in;
using testing::OtherProcess;
using testing::read_text;
using testing::TemporaryFolder;
using ::testing::ThrowsMessage;
using testing::write_text;

/// Bytes that identify their step.
std::string content_of(int64_t step, const std::string& part) {
  std::string bytes;
  for (int i = 0; i < 300; ++i) bytes += part + std::to_string(step * 1000 + i);
  return bytes;
}

std::string save(CheckpointStore& store, int64_t step, bool is_best = false) {
  return store.save({.step = step, .epoch = step / 10, .is_best = is_best, .version = "1.2.3"}, "state.pt",
                    [&](PartSink& sink) {
                      for (const std::string part : {"model.weight", "model.bias"}) {
                        const std::string bytes = content_of(step, part);
                        sink.write(bytes.data(), bytes.size());
                        sink.end_part(part);
                      }
                      sink.write("the end", 7);
                    });
}

/// Returns a checkpoint's content. Throws as a reader does.
std::string read_whole(const std::string& path) {
  const CheckpointManifest manifest = read_manifest(path);
  return read_checkpoint_file(path, manifest.files.at(0));
}

std::string whole_of(int64_t step) {
  return content_of(step, "model.weight") + content_of(step, "model.bias") + "the end";
}

TEST(CheckpointStoreTest, KeepsWhatItWasGivenWithItsManifest) {
  const TemporaryFolder folder;
  CheckpointStore store({.folder = folder.path() + "/deep/store", .job = "a job", .generation = 3});
  const std::string path = save(store, 120);
  EXPECT_EQ(path, folder.path() + "/deep/store/checkpoint-000000000120");
  EXPECT_THAT(names_in(path), ElementsAre("manifest.json", "manifest.sha256", "state.pt"));
  const auto manifest = read_manifest(path);
  EXPECT_EQ(manifest.step, 120);
  EXPECT_EQ(manifest.epoch, 12);
  EXPECT_EQ(manifest.generation, 3);
  EXPECT_FALSE(manifest.is_best);
  EXPECT_EQ(manifest.version, "1.2.3");
  ASSERT_EQ(manifest.files.size(), 1);
  const auto& parts = manifest.files[0].parts;
  ASSERT_EQ(parts.size(), 3);
  EXPECT_EQ(parts[1], (CheckpointPart{"model.bias", content_of(120, "model.bias").size(),
                                      sha256(content_of(120, "model.bias"))}));
  EXPECT_EQ(parts[2].name, "end");
  EXPECT_EQ(read_whole(path), whole_of(120));
}

TEST(CheckpointStoreTest, TheManifestsChecksumIsWhatSha256sumReads) {
  const TemporaryFolder folder;
  CheckpointStore store({.folder = folder.path()});
  const std::string path = save(store, 1);
  EXPECT_EQ(std::system(("cd " + path + " && sha256sum --quiet -c manifest.sha256").c_str()), 0);
}

TEST(CheckpointStoreTest, ListsTheNewestFirstAndKeepsTheLastAndTheBest) {
  const TemporaryFolder folder;
  CheckpointStore store({.folder = folder.path(), .keep_last = 2});
  const auto steps = [&] {
    std::vector<int64_t> listed;
    for (const auto& path : list_checkpoints(folder.path())) listed.push_back(read_manifest(path).step);
    return listed;
  };
  save(store, 5);
  save(store, 10, /*is_best=*/true);
  save(store, 15);
  EXPECT_THAT(steps(), ElementsAre(15, 10));
  save(store, 20);
  save(store, 1000);
  EXPECT_THAT(steps(), ElementsAre(1000, 20, 10));
  save(store, 1010, /*is_best=*/true);
  EXPECT_THAT(steps(), ElementsAre(1010, 1000));
}

TEST(CheckpointStoreTest, ASecondOneOfAStepTakesThePlaceOfTheFirst) {
  const TemporaryFolder folder;
  CheckpointStore store({.folder = folder.path()});
  const std::string path = save(store, 7);
  write_text(path + "/state.pt", "damaged");
  EXPECT_EQ(save(store, 7), path);
  EXPECT_EQ(read_whole(path), whole_of(7));
  EXPECT_THAT(names_in(folder.path()), ElementsAre("checkpoint-000000000007", "lock"));
}

TEST(CheckpointStoreTest, FindsEveryFlippedBitAndTruncationAndNamesFileAndPart) {
  const TemporaryFolder folder;
  CheckpointStore store({.folder = folder.path()});
  const std::string path = save(store, 3);
  std::mt19937 random(11);
  const std::vector<std::string> names{"manifest.json", "manifest.sha256", "state.pt"};
  for (int i = 0; i < 2000; ++i) {
    const std::string file = path + "/" + names[random() % names.size()];
    const std::string whole = read_text(file);
    std::string damaged = whole;
    const size_t place = random() % whole.size();
    if (i % 4 == 0) {
      damaged.resize(place);
    } else {
      damaged[place] = static_cast<char>(damaged[place] ^ (1 << random() % 8));
    }
    write_text(file, damaged);
    std::string error;
    try {
      read_whole(path);
    } catch (const CheckpointError& caught) {
      error = caught.what();
    }
    ASSERT_THAT(error, HasSubstr(path)) << file << " damaged at " << place;
    if (file.ends_with("state.pt") && i % 4 != 0) {
      const size_t first = content_of(3, "model.weight").size(), second = content_of(3, "model.bias").size();
      const std::string part = place < first ? "model.weight" : place < first + second ? "model.bias" : "end";
      ASSERT_THAT(error, HasSubstr("state.pt: " + part + ": expected bytes with their checksum"));
    }
    write_text(file, whole);
  }
  EXPECT_EQ(read_whole(path), whole_of(3));
}

TEST(CheckpointStoreTest, AProcessKilledAtAnyMomentOfSavingLeavesWholeCheckpointsOnly) {
  const TemporaryFolder folder;
  std::mt19937 random(5);
  int64_t newest = 5;
  const auto begin = std::chrono::steady_clock::now();
  {
    CheckpointStore store({.folder = folder.path()});
    for (int64_t step = 1; step <= newest; ++step) save(store, step);
  }
  // Kills fall as often within a save as between two, however fast the disk is.
  const std::chrono::microseconds for_three =
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin) * 3 /
      newest;
  const auto latest = static_cast<uint64_t>(std::max<int64_t>(for_three.count(), 15000));
  // On a busy machine savers get less far. nightly.sh load repeats the test 50 times.
  for (int i = 0; i < 300 || (newest <= 100 && i < 3000); ++i) {
    const pid_t saver = fork();
    if (saver == 0) {
      CheckpointStore store({.folder = folder.path()});
      for (int64_t step = newest + 1;; ++step) save(store, step);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(500 + random() % latest));
    kill(saver, SIGKILL);
    waitpid(saver, nullptr, 0);
    const auto there = list_checkpoints(folder.path());
    for (const auto& path : there) {
      const auto manifest = read_manifest(path);
      ASSERT_EQ(read_whole(path), whole_of(manifest.step)) << "after kill " << i;
    }
    if (there.empty()) continue;
    const int64_t step = read_manifest(there.front()).step;
    ASSERT_GE(step, newest);
    newest = step;
  }
  EXPECT_GT(newest, 100);  // many were made in all
  { const CheckpointStore store({.folder = folder.path()}); }
  for (const auto& name : names_in(folder.path())) EXPECT_THAT(name, HasSubstr("checkpoint-0"));
}

TEST(CheckpointStoreTest, AFullDiskLeavesTheCheckpointsFromBeforeAndNothingElse) {
  const TemporaryFolder folder;
  CheckpointStore store({.folder = folder.path()});
  const std::string path = save(store, 1);
  {
    const FileSizeLimit limit(1000);
    EXPECT_THAT([&] { save(store, 2); }, ThrowsMessage<std::system_error>(HasSubstr("state.pt")));
  }
  EXPECT_THAT(names_in(folder.path()), ElementsAre("checkpoint-000000000001", "lock"));
  EXPECT_EQ(read_whole(path), whole_of(1));
  save(store, 2);
  EXPECT_EQ(list_checkpoints(folder.path()).size(), 2);
}

TEST(CheckpointStoreTest, AWriterThatThrowsLeavesNothing) {
  const TemporaryFolder folder;
  CheckpointStore store({.folder = folder.path()});
  EXPECT_THROW(store.save({.step = 1}, "state.pt", [](PartSink&) { throw InvalidArgument("no"); }),
               InvalidArgument);
  EXPECT_THAT(names_in(folder.path()), ElementsAre("lock"));
}

TEST(CheckpointStoreTest, ASecondProcessIsToldWhoOwnsTheFolder) {
  const TemporaryFolder folder;
  const OtherProcess owner([&] { new CheckpointStore({.folder = folder.path()}); });
  ASSERT_TRUE(owner.is_ready());
  EXPECT_THAT([&] { CheckpointStore({.folder = folder.path()}); },
              ThrowsMessage<CheckpointError>(
                  AllOf(HasSubstr("process " + std::to_string(owner.id())), HasSubstr(folder.path()))));
}

TEST(CheckpointStoreTest, AGenerationThatCameBackLateWritesNothing) {
  const TemporaryFolder folder;
  CheckpointStore early({.folder = folder.path(), .job = "a job", .generation = 0});
  save(early, 1);
  CheckpointStore late({.folder = folder.path(), .job = "a job", .generation = 1});
  EXPECT_THAT([&] { save(early, 2); },
              ThrowsMessage<CheckpointError>(HasSubstr("a later start of this job")));
  save(late, 3);
  EXPECT_THAT(names_in(folder.path()),
              ElementsAre("checkpoint-000000000001", "checkpoint-000000000003", "lock"));
}

TEST(CheckpointStoreTest, WhatWasBegunAndIsGoneTakesNoCheckpointsPlace) {
  const TemporaryFolder folder;
  CheckpointStore store({.folder = folder.path(), .keep_last = 1});
  const std::string path = save(store, 1);
  const std::string begun = store.begin();
  const auto file = write_checkpoint_file(begun, "state.pt", [](PartSink& sink) { sink.write("x", 1); });
  std::filesystem::remove_all(begun);  // as a later start of the job does
  EXPECT_THROW(store.commit(begun, {.step = 1, .files = {file}}), std::system_error);
  EXPECT_EQ(read_whole(path), whole_of(1));
}

TEST(CheckpointStoreTest, RefusesAManifestThatNobodyWouldRead) {
  const TemporaryFolder folder;
  CheckpointStore store({.folder = folder.path()});
  EXPECT_THAT(
      [&] {
        store.save({.step = 1}, "state.pt", [](PartSink& sink) {
          const std::string name(size_t{1} << 20, 'a');
          for (int i = 0; i < 17; ++i) sink.end_part(name);
        });
      },
      ThrowsMessage<std::system_error>(HasSubstr("manifest.json")));
  EXPECT_THAT(names_in(folder.path()), ElementsAre("lock"));
}

TEST(CheckpointStoreTest, SetsAsideWhatLiesBehindAStep) {
  const TemporaryFolder folder;
  CheckpointStore store({.folder = folder.path(), .keep_last = 5});
  for (const int64_t step : {1, 2, 3}) save(store, step);
  EXPECT_EQ(store.set_aside_after(1), 2);
  EXPECT_EQ(list_checkpoints(folder.path()).size(), 1);
  EXPECT_EQ(read_whole(folder.path() + "/set-aside-checkpoint-000000000003"), whole_of(3));
  store.clear();
  EXPECT_THAT(list_checkpoints(folder.path()), IsEmpty());
}

TEST(CheckpointStoreTest, AHostileManifestIsRefusedWithoutMoreMemoryThanItsFile) {
  const TemporaryFolder folder;
  CheckpointStore store({.folder = folder.path()});
  const std::string path = save(store, 1);
  const std::string right = read_text(path + "/manifest.json");
  const auto with = [&](const std::string& text, const std::string& expected) {
    write_text(path + "/manifest.json", text);
    write_text(path + "/manifest.sha256", sha256(text) + "  manifest.json\n");
    EXPECT_THAT([&] { read_whole(path); }, ThrowsMessage<CheckpointError>(HasSubstr(expected))) << text;
  };
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string text = right;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  with("", "manifest.json");
  with("[]", "manifest.json");
  with("{}", "format: expected a count, but got nothing");
  with(std::string(100000, '['), "manifest.json");
  with(replaced("\"format\": 1", "\"format\": 3"), "format: expected at most 2, but got 3");
  with(replaced("\"state.pt\"", "\"../state.pt\""), "expected a name in the folder");
  with(replaced("\"state.pt\"", "\"..\""), "expected a name in the folder");
  with(replaced("\"step\": 1", "\"step\": -1"), "step: expected a count");
  with(replaced("\"step\": 1", "\"step\": 18446744073709551615"), "step: expected a count");
  with(replaced("\"bytes\": " + std::to_string(content_of(1, "model.weight").size()),
                "\"bytes\": 9223372036854775807"),
       "more than any file has");
  with(replaced("\"bytes\": 7", "\"bytes\": 70000000000"), "file size: expected 70000");
  EXPECT_THAT([&] { read_whole(folder.path() + "/none"); },
              ThrowsMessage<CheckpointError>(HasSubstr("none")));
}

TEST(CheckpointStoreTest, RefusesOptionsOutOfRange) {
  EXPECT_THROW(CheckpointStore({.folder = ""}), InvalidArgument);
  const TemporaryFolder folder;
  EXPECT_THROW(CheckpointStore({.folder = folder.path(), .keep_last = 0}), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
