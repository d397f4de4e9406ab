"""The litmus test: does a task need attention that looks at the content?"""
