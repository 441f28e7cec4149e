"""What happens around every served call, in this order, outermost first:

1. tracing: one SERVER span and one duration per call; needs nothing, sees the final status of all below.
2. errors: ServiceError becomes a status with details, anything else INTERNAL with the trace id, so it needs a span.
3. deadline: every call ends; its failure is a ServiceError, so it needs errors.
4. concurrency: refuses calls over the cap before any work is spent on them.
5. identity: the principal of the call; handlers and validation run as somebody.
6. validation: the request satisfies its protovalidate rules.

grpc.aio's own interceptors wrap handlers of four shapes and say nothing about how a stream ends. Ours wrap two (one
response, many responses), and `Chain` drives streams itself, so that whatever ends a call reaches every layer in the
call's own task: `CancelledError` where a handler awaits, `GeneratorExit` where it is suspended in a `yield`.
"""
