// Work distributed to the threads of XLA's pool.

#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "xla/ffi/api/ffi.h"

namespace entroplay {

namespace ffi = xla::ffi;

// Runs work(0), ..., work(count - 1) on the threads of XLA's pool and on the calling thread, and
// returns when all are done. Threads that start late find no number left: a pool that is busy
// elsewhere costs time, but never the result.
inline void parallel(ffi::ThreadPool& pool, int count, const std::function<void(int)>& work) {
  struct Shared {
    std::atomic<int> next{0};
    int done = 0;
    std::mutex mutex;
    std::condition_variable all_done;
  };
  auto shared = std::make_shared<Shared>();
  // A pointer suffices: the job is called only for numbers below count, and all of these calls end
  // before this function returns. Late threads hold `shared`, which outlives it.
  const std::function<void(int)>* job = &work;
  auto help = [shared, job, count]() {
    for (int i = shared->next++; i < count; i = shared->next++) {
      (*job)(i);
      std::lock_guard<std::mutex> lock(shared->mutex);
      if (++shared->done == count) shared->all_done.notify_all();
    }
  };
  const int64_t helpers = std::min<int64_t>(pool.num_threads() - 1, count - 1);
  for (int64_t i = 0; i < helpers; ++i) pool.Schedule(std::function<void()>(help));
  help();
  std::unique_lock<std::mutex> lock(shared->mutex);
  shared->all_done.wait(lock, [&] { return shared->done == count; });
}

// The error for arguments of the wrong shape or type.
inline ffi::Error wrong(const char* what) {
  return ffi::Error(ffi::ErrorCode::kInvalidArgument, what);
}

}  // namespace entroplay
